"""Arguments of a wrong kind: one error that says what to give, and a client that works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import InvalidArgument, MillstreamError
from millstream.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.integration

PLACE = TopicPartition("t", 0)
PLAIN: Any = ("t", 0)
WRONG: Any = b"wrong"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("t", partitions=1)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def consumer(bootstrap: str) -> Iterator[Consumer]:
    with Consumer(bootstrap, group_id="arguments", auto_offset_reset="earliest") as made:
        made.assign([PLAIN])
        yield made


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


def test_a_plain_tuple_is_a_partition(bootstrap: str, consumer: Consumer, admin: Admin) -> None:
    assert consumer.position(PLAIN) >= 0
    consumer.commit({PLAIN: 0})
    assert consumer.committed([PLAIN]) == {PLACE: OffsetAndMetadata(0)}
    assert consumer.beginning_offsets([PLAIN]) == {PLACE: 0}
    assert admin.list_offsets({PLAIN: "latest"})[PLACE].offset == 0
    with Producer(bootstrap, transactional_id="arguments") as producer, producer.transaction():
        producer.send_offsets_to_transaction({PLAIN: 0}, "another")


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda it: it.assign(["t"]), "'t' is no partition; give TopicPartition"),
        (lambda it: it.assign(PLACE), "is no list of partitions"),
        (lambda it: it.assign([("t", "0")]), "is no partition"),
        (lambda it: it.assign(5), "5 is no list of partitions"),
        (lambda it: it.pause(["t"]), "is no partition"),
        (lambda it: it.commit({"t": 3}), "is no partition"),
        (lambda it: it.commit({PLACE: "3"}), "commit an offset of 0 or more"),
        (lambda it: it.commit({PLACE: OffsetAndMetadata(-1)}), "commit an offset of 0 or more"),
        (lambda it: it.commit({PLACE: OffsetAndMetadata(1, WRONG)}), "metadata must be a str"),
        (lambda it: it.commit({PLACE: OffsetAndMetadata(1, "", WRONG)}), "leader_epoch must be"),
        (lambda it: it.commit([PLACE]), "give a dict from TopicPartition to an offset"),
        (lambda it: it.commit_async({PLACE: 1.5}), "commit an offset of 0 or more"),
        (lambda it: it.seek(PLACE, "3"), "offset='3': must be a number of 0 or more"),
        (lambda it: it.seek(PLACE, -1), "seek_to_beginning and seek_to_end"),
        (lambda it: it.seek(PLACE, True), "must be a number"),
        (lambda it: it.offsets_for_times({PLACE: "yesterday"}), "is no time"),
        (lambda it: it.offsets_for_times([PLACE]), "to a time"),
        (lambda it: it.end_offsets("t"), "is no list of partitions"),
        (lambda it: it.subscribe([b"t"]), "a topic is a str"),
        (lambda it: it.subscribe(5), "5 is no topic"),
        (lambda it: it.subscribe(pattern=b"t.*"), "give a str, or re.compile"),
    ],
)
def test_a_consumer_works_on(
    consumer: Consumer, call: Callable[[Any], object], advice: str
) -> None:
    with pytest.raises(InvalidArgument, match=advice):
        call(consumer)

    assert consumer.position(PLACE) >= 0


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda it: it.create_topics([5]), "give NewTopic"),
        (lambda it: it.create_topics("t"), "is no list of topics"),
        (lambda it: it.create_topic(b"t"), "a name is a str"),
        (lambda it: it.create_topic("other", partitions="3"), "no int32"),
        (lambda it: it.delete_topic(5), "a name is a str, not 5"),
        (lambda it: it.describe_topics("t"), "'t' is no list"),
        (lambda it: it.list_offsets({"t": "latest"}), "is no partition"),
        (lambda it: it.elect_leaders(["t"])["t"], "is no partition"),
        (lambda it: it.alter_group_offsets("g", {PLACE: "3"})[PLACE], "of a wrong kind"),
        (lambda it: it.describe_configs(["t"]), "of a wrong kind"),
        (lambda it: it.list_topics(timeout="3"), "timeout='3'"),
    ],
)
def test_an_admin_works_on(admin: Admin, call: Callable[[Any], object], advice: str) -> None:
    with pytest.raises(MillstreamError, match=advice):
        call(admin)

    assert [each.name for each in admin.list_topics()]


def test_a_name_alone_is_a_topic_to_create(admin: Admin) -> None:
    assert admin.create_topics(["named"])["named"].partitions == 1


@pytest.mark.parametrize("partition", ["0", -1, 0.5, True])
def test_a_partition_to_send_to_is_a_number(bootstrap: str, partition: Any) -> None:
    with (
        Producer(bootstrap) as producer,
        pytest.raises(InvalidArgument, match=r"partition=.*leave it out"),
    ):
        producer.send("t", "v", partition=partition)


@pytest.mark.parametrize("offset", ["3", None, OffsetAndMetadata(-1)])
def test_a_transaction_goes_on_without_the_wrong_offsets(bootstrap: str, offset: Any) -> None:
    with Producer(bootstrap, transactional_id="wrong") as producer, producer.transaction():
        with pytest.raises(InvalidArgument, match="commit an offset of 0 or more"):
            producer.send_offsets_to_transaction({PLACE: offset}, "another")
        producer.send_offsets_to_transaction({PLACE: 1}, "another")
