"""Our members of groups and share groups with Apache Kafka: the same as with our broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.client.consumer.membership.assignors import resolve
from millstream.client.consumer.membership.consumer_protocol import ConsumerMember
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import CommitFailed
from tests.integration.client.members import Member
from tests.integration.client.share_places import Place
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PARTITIONS = 4
SETTINGS = """
group.consumer.min.heartbeat.interval.ms=200
group.consumer.heartbeat.interval.ms=200
group.min.session.timeout.ms=1000
group.share.min.heartbeat.interval.ms=200
group.share.heartbeat.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
"""
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    jars = require_broker_jars(tmp_path_factory.mktemp("maven"))
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(jars, scratch / "data", scratch)
    with broker.settings_path.open("a") as settings:
        settings.write(SETTINGS)
    broker.format()
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def make_topic(kafka: KafkaBroker, name: str, partitions: int = PARTITIONS) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.address})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
    for future in admin.create_topics([topic]).values():
        future.result(30)
    return name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_a_topic_and_take_over_from_who_leaves(
    kafka: KafkaBroker, protocol: str
) -> None:
    topic = make_topic(kafka, f"shared-{protocol}")
    with Member(
        kafka.address, f"g-{topic}", group_protocol=protocol, heartbeat_interval_ms=200
    ) as first:
        first.subscribe(topic)
        first.wait_for(PARTITIONS)
        partition = min(first.owned)
        first.commit({partition: OffsetAndMetadata(7, "why", 0)})
        assert first.committed(frozenset({partition})) == {
            partition: OffsetAndMetadata(7, "why", 0)
        }
        with Member(
            kafka.address, f"g-{topic}", group_protocol=protocol, heartbeat_interval_ms=200
        ) as second:
            second.subscribe(topic)
            second.wait_for(2)
            first.wait_for(2)
            assert not first.owned & second.owned
            with pytest.raises(CommitFailed):
                first.commit({min(second.owned): OffsetAndMetadata(1)})
        first.wait_for(PARTITIONS)


def test_the_consumer_protocol_is_chosen_by_itself(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka, "auto")
    with Member(kafka.address, f"g-{topic}") as member:
        member.subscribe(topic)
        member.wait_for(PARTITIONS)
        assert isinstance(member.membership._machine, ConsumerMember)


def test_cooperating_members_give_up_only_what_moves(kafka: KafkaBroker) -> None:
    topic = make_topic(kafka, "cooperating")
    settings: dict[str, object] = {
        "group_protocol": "classic",
        "assignors": resolve(["cooperative-sticky"]),
        "heartbeat_interval_ms": 200,
    }
    with Member(kafka.address, f"g-{topic}", **settings) as first:
        first.subscribe(topic)
        first.wait_for(PARTITIONS)
        with Member(kafka.address, f"g-{topic}", **settings) as second:
            second.subscribe(topic)
            second.wait_for(2)
            revoked = [each for each in first.events if type(each).__name__ == "Revoked"]
            assert [len(each.partitions) for each in revoked] == [2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions(kafka: KafkaBroker, protocol: str) -> None:
    topic = make_topic(kafka, f"static-{protocol}")
    settings: dict[str, object] = {"group_protocol": protocol, "heartbeat_interval_ms": 200}
    with Member(kafka.address, f"g-{topic}", group_instance_id="a", **settings) as stays:
        stays.subscribe(topic)
        with Member(kafka.address, f"g-{topic}", group_instance_id="b", **settings) as goes:
            goes.subscribe(topic)
            stays.wait_for(2)
            goes.wait_for(2)
            had, told = goes.owned, len(stays.events)
        with Member(kafka.address, f"g-{topic}", group_instance_id="b", **settings) as back:
            back.subscribe(topic)
            back.wait_for(2)
            assert back.owned == had
            assert len(stays.events) == told


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_finds_its_topics(kafka: KafkaBroker, protocol: str) -> None:
    topic = make_topic(kafka, f"pattern-{protocol}")
    with Member(kafka.address, f"g-{topic}", group_protocol=protocol) as member:
        member.subscribe(regex=f"pattern-{protocol[:4]}.*")
        member.wait_for(PARTITIONS)


def test_records_of_a_share_group_are_accepted_released_and_rejected(kafka: KafkaBroker) -> None:
    place = Place(kafka.address, make_topic(kafka, "jobs", 1))
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        place.produce("accept", "release", "reject")
        seen: list[tuple[str, int]] = []
        while len(seen) < 4:
            for record in consumer.poll(20):
                seen.append((record.value, record.delivery_count))
                consumer.acknowledge(
                    record, record.value if record.delivery_count == 1 else "accept"
                )
        assert consumer.commit() == {place.partition: None}

    assert sorted(seen) == [("accept", 1), ("reject", 1), ("release", 1), ("release", 2)]
    assert consumer.acquisition_lock_timeout == 30.0


def test_members_of_a_share_group_share_the_records_of_a_partition(kafka: KafkaBroker) -> None:
    place = Place(kafka.address, make_topic(kafka, "shared-jobs", 1))
    settings = {"max_poll_records": 10, "share_acquire_mode": "record_limit"}
    with place.consumer(**settings) as first, place.consumer(**settings) as second:
        place.produce(*(f"v{each}" for each in range(60)))
        seen: list[str] = []
        while len(seen) < 60:
            for each in (first, second):
                records = each.poll(0.5)
                assert len(records) <= 10
                seen += [record.value for record in records]

    assert sorted(seen) == sorted(f"v{each}" for each in range(60))


def test_a_lock_is_renewed(kafka: KafkaBroker) -> None:
    place = Place(kafka.address, make_topic(kafka, "long-jobs", 1))
    with place.consumer() as consumer:
        place.produce("a")
        (record,) = consumer.poll(20)
        consumer.acknowledge(record, "renew")
        assert consumer.commit() == {place.partition: None}
        consumer.acknowledge(record)
        assert consumer.commit() == {place.partition: None}
