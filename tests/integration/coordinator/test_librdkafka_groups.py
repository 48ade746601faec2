"""Groups of librdkafka: both protocols, members that come, go and die, offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import SystemClock

confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason="a client used only in tests")
admin_api: Any = pytest.importorskip("confluent_kafka.admin", reason="a client used only in tests")

TopicPartition = confluent_kafka.TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 4
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "roundrobin": {**CLASSIC, "partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "consumer-range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Members:
    """The members of one group; they are polled one after the other, as one thread can."""

    def __init__(self, broker: str, group: str, topic: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": broker,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
        self._topic = topic
        self.live: list[Any] = []
        self.values: list[bytes] = []

    def add(self, **settings: Any) -> Any:
        member = confluent_kafka.Consumer({**self._settings, **settings})
        member.subscribe([self._topic])
        self.live.append(member)
        return member

    def poll(self) -> None:
        for member in self.live:
            for message in member.consume(100, timeout=0.05):
                assert message.error() is None, message.error()
                self.values.append(message.value())

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + int(seconds * 1000)
        while not holds():
            self.poll()
            assert clock.monotonic_ms() < deadline_ms, [each.assignment() for each in self.live]

    def is_settled(self) -> bool:
        """Everything is with somebody, and every member has something."""
        owned = [part.partition for each in self.live for part in each.assignment()]
        return sorted(owned) == list(range(PARTITIONS)) and all(
            each.assignment() for each in self.live
        )

    def remove(self, member: Any) -> None:
        self.live.remove(member)
        member.close()

    def close(self) -> None:
        for member in list(self.live):
            self.remove(member)


@pytest.fixture
def members(
    broker: str, topic: str, new_name: Callable[[str], str], protocol: str
) -> Iterator[Members]:
    made = Members(broker, new_name("group"), topic, **PROTOCOLS[protocol])
    yield made
    made.close()


def produce(broker: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@every_protocol
def test_members_come_and_go(broker: str, topic: str, members: Members) -> None:
    values = [b"%d" % number for number in range(400)]
    produce(broker, topic, values)

    first = members.add()
    members.until(members.is_settled)
    members.until(lambda: len(members.values) == 400)
    assert sorted(members.values) == sorted(values)
    first.commit(asynchronous=False)

    second, third = members.add(), members.add()
    members.until(members.is_settled)
    members.remove(first)
    members.until(members.is_settled)

    produce(broker, topic, [b"later"] * 40)
    members.until(lambda: members.values.count(b"later") == 40)
    assert len(members.values) == 440, "what was committed is not read again"
    second.commit(asynchronous=False)
    third.commit(asynchronous=False)


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_member_that_dies_is_missed(members: Members) -> None:
    members.add()
    # It never leaves: librdkafka sends no departure for a static member.
    dead = members.add(**{"group.instance.id": "static"})
    members.until(members.is_settled)

    members.remove(dead)
    members.until(members.is_settled, seconds=90)


@every_protocol
def test_offsets_are_committed_and_found_again(broker: str, topic: str, members: Members) -> None:
    member = members.add()
    members.until(members.is_settled)
    wanted = [
        TopicPartition(topic, partition, 10 * partition + 1, metadata=f"note {partition}")
        for partition in range(PARTITIONS)
    ]

    member.commit(offsets=wanted, asynchronous=False)

    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = member.committed(asked, timeout=30)
    assert [each.offset for each in found] == [1, 11, 21, 31]
    assert [each.metadata for each in found] == [each.metadata for each in wanted]


@every_protocol
def test_a_group_is_listed_described_altered_and_deleted(
    broker: str, topic: str, members: Members, protocol: str
) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker})
    member = members.add(**{"client.id": "somebody"})
    members.until(members.is_settled)
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    group = members._settings["group.id"]

    listed = {each.group_id: each for each in admin.list_consumer_groups().result(30).valid}
    kind = "CONSUMER" if protocol.startswith("consumer") else "CLASSIC"
    assert listed[group].state.name == "STABLE"
    assert listed[group].type.name == kind
    described = admin.describe_consumer_groups([group])[group].result(30)
    (only,) = described.members
    assert only.client_id == "somebody"
    assert len(only.assignment.topic_partitions) == PARTITIONS
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(30)

    members.close()
    altered = confluent_kafka.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([altered])[group].result(30)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
    assert [(each.partition, each.offset) for each in found] == [(0, 2)]
    admin.delete_consumer_groups([group])[group].result(30)
    listed_ids = [each.group_id for each in admin.list_consumer_groups().result(30).valid]
    assert group not in listed_ids


@pytest.mark.parametrize("protocol", ["consumer"])
def test_an_expression_finds_topics_that_come_later(
    broker: str, new_name: Callable[[str], str], members: Members
) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker})
    prefix = new_name("regex")
    for name in (f"{prefix}-a", f"{prefix}-b"):
        admin.create_topics([admin_api.NewTopic(name, 2)])[name].result(30)
    members._topic = f"^{prefix}-.*"
    member = members.add(**{"topic.metadata.refresh.interval.ms": 500})
    members.until(lambda: len(member.assignment()) == 4)

    admin.create_topics([admin_api.NewTopic(f"{prefix}-c", 2)])[f"{prefix}-c"].result(30)
    members.until(lambda: len(member.assignment()) == 6)
