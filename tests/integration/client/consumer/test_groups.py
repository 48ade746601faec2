"""Consumers in groups with a real broker: commits, listeners, rebalances, patterns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import (
    InvalidArgument,
    InvalidGroupId,
    UnsupportedAssignor,
)
from tests.integration.client.consumer.reading import PATIENCE, assigned, read, values

if TYPE_CHECKING:
    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_left_off(topics: Topics, protocol: Any) -> None:
    topic = topics.make(10)
    settings: Any = {
        "group_id": f"group-{topic}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    at = TopicPartition(topic, 0)

    with Consumer(topics.bootstrap, topic, max_poll_records=4, **settings) as consumer:
        assert values(consumer.poll(PATIENCE)) == [b"v0", b"v1", b"v2", b"v3"]
        assert consumer.subscription() == {topic}
        assert consumer.group_metadata().member_id
    with Consumer(topics.bootstrap, topic, **settings) as consumer:
        assert values(read(consumer, 6))[0] == b"v4"
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 4


def test_an_exception_commits_only_what_earlier_polls_gave(topics: Topics) -> None:
    topic = topics.make(10)
    settings: Any = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}

    def fail_at_the_second_poll() -> None:
        with Consumer(topics.bootstrap, topic, max_poll_records=3, **settings) as consumer:
            assert len(consumer.poll(PATIENCE)) == 3
            raise LookupError(len(consumer.poll(PATIENCE)))

    with pytest.raises(LookupError):
        fail_at_the_second_poll()

    with Consumer(topics.bootstrap, topic, **settings) as consumer:
        assert consumer.poll(PATIENCE)[0].offset == 3


def test_commits_by_hand(topics: Topics) -> None:
    topic = topics.make(10)
    at = TopicPartition(topic, 0)
    done: list[Any] = []
    consumer = assigned(topics, topic, group_id=f"group-{topic}", enable_auto_commit=False)

    with consumer:
        assert consumer.committed([at]) == {at: None}
        for record in consumer:
            if record.offset == 4:
                break
        consumer.commit()
        assert consumer.committed([at])[at] == OffsetAndMetadata(5, leader_epoch=0)
        consumer.commit({at: OffsetAndMetadata(7, "note")})
        assert consumer.committed([at])[at] == OffsetAndMetadata(7, "note")
        consumer.commit_async({at: 8}, on_done=lambda offsets, error: done.append((offsets, error)))
        while not done:
            consumer.poll(0.05)
        assert done == [({at: OffsetAndMetadata(8)}, None)]
        with pytest.raises(InvalidArgument, match="commit an offset of 0 or more"):
            consumer.commit({at: -3})


def test_without_a_group_there_is_nothing_to_commit_to(topics: Topics) -> None:
    topic = topics.make(1)
    with assigned(topics, topic) as consumer:
        read(consumer, 1)
        with pytest.raises(InvalidGroupId, match="give it a group_id"):
            consumer.commit()
    with pytest.raises(InvalidGroupId):
        Consumer(topics.bootstrap, topic)


def test_listeners_hear_of_partitions_in_the_polling_thread(topics: Topics) -> None:
    topic = topics.make(4, partitions=2)
    heard: list[tuple[str, list[int], int]] = []

    class Listener:
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            heard.append(("assigned", [e.partition for e in partitions], threading.get_ident()))
            for each in partitions:
                consumer.seek(each, 1)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            heard.append(("revoked", [e.partition for e in partitions], threading.get_ident()))

    consumer = Consumer(topics.bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest")
    with consumer:
        consumer.subscribe([topic], listener=Listener())
        records = read(consumer, 2)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert consumer.subscription() == frozenset()

    assert sorted(values(records)) == [b"v2", b"v3"]
    here = threading.get_ident()
    assert heard == [("assigned", [0, 1], here), ("revoked", [0, 1], here)]


def test_a_second_member_takes_its_share(topics: Topics) -> None:
    topic = topics.make(20, partitions=4)
    settings: Any = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}

    with (
        Consumer(topics.bootstrap, topic, **settings) as first,
        Consumer(topics.bootstrap, topic, **settings) as second,
    ):
        for _ in range(200):
            first.poll(0.05)
            second.poll(0.05)
            shares = (len(first.assignment()), len(second.assignment()))
            if shares == (2, 2):
                break

    assert shares == (2, 2)


def test_a_group_that_refuses_its_member_is_raised_by_poll(topics: Topics) -> None:
    topic = topics.make()
    with Consumer(
        topics.bootstrap,
        topic,
        group_id=f"group-{topic}",
        group_protocol="consumer",
        group_remote_assignor="nobody",
    ) as consumer:
        with pytest.raises(UnsupportedAssignor):
            consumer.poll(PATIENCE)
        with pytest.raises(InvalidArgument, match="nothing to poll"):
            consumer.poll()


def test_a_rebalance_on_request(topics: Topics) -> None:
    topic = topics.make(1)
    heard: list[str] = []

    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None:
            heard.append("assigned")

        def on_partitions_revoked(self, partitions: object) -> None:
            heard.append("revoked")

    with Consumer(
        topics.bootstrap,
        group_id=f"group-{topic}",
        group_protocol="classic",
        partition_assignment_strategy=["range"],
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(topic, listener=Listener())
        read(consumer, 1)
        consumer.enforce_rebalance()
        for _ in range(100):
            consumer.poll(0.1)
            if heard == ["assigned", "revoked", "assigned"]:
                break
        assert heard == ["assigned", "revoked", "assigned"]


def test_a_listener_that_fails_is_raised_and_the_group_goes_on(topics: Topics) -> None:
    topic = topics.make(1)

    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None:
            raise LookupError("not today")

    with Consumer(
        topics.bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(topic, listener=Listener())
        with pytest.raises(LookupError, match="not today"):
            consumer.poll(PATIENCE)
        assert values(read(consumer, 1)) == [b"v0"]


def test_patterns_of_names(topics: Topics) -> None:
    import re

    wanted = topics.make(2, prefix="pattern-yes")
    topics.make(2, prefix="pattern-no")

    for pattern in ("pattern-yes-.*", re.compile(r"pattern-yes-\d+")):
        with Consumer(
            topics.bootstrap, group_id=f"g-{id(pattern)}", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(pattern=pattern)
            assert {each.topic for each in read(consumer, 2)} == {wanted}
            assert consumer.subscription() == {wanted}
