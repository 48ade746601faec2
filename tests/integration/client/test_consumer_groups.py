"""Consumers in groups, as users see them: nothing lost or repeated, nobody put out for working."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream import (
    Admin,
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from millstream.clock import SystemClock
from millstream.errors import CommitFailed, FencedInstanceId
from millstream.testing.embedded import EmbeddedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.integration

PARTITIONS = 4
PROTOCOLS = ("classic", "consumer")
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1500",
    "group.consumer.session.timeout.ms": "1500",
    "group.min.session.timeout.ms": "1500",
}
SESSION_SECONDS = 1.5
HEARTBEAT_SECONDS = 0.1
HEARTBEATS_OF_TWO_SESSIONS = 30
HEARTBEAT_APIS = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}
PATIENCE_MS = 30_000
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SETTINGS, in_memory=True) as running:
        yield running


class Place:
    """A topic and a group."""

    def __init__(self, broker: EmbeddedBroker, topic: str, protocol: str) -> None:
        self._faults = broker.faults
        self._protocol = protocol
        self.address = broker.bootstrap_servers
        self.topic = topic
        self.settings: dict[str, Any] = {
            "group_id": f"group-{topic}",
            "group_protocol": protocol,
            "heartbeat_interval": HEARTBEAT_SECONDS,
            "session_timeout": SESSION_SECONDS,
            "auto_offset_reset": "earliest",
        }

    def consumer(self, **more: Any) -> Consumer[bytes, bytes]:
        return Consumer(self.address, self.topic, **{**self.settings, **more})

    def produce(self, first: int, count: int) -> None:
        with Producer(self.address) as producer:
            for number in range(first, first + count):
                producer.send(self.topic, str(number).encode(), partition=number % PARTITIONS)

    def let_two_sessions_pass(self) -> None:
        """Block the thread until the only member's heartbeats of two sessions have come."""
        begin_ms = CLOCK.monotonic_ms()
        # No delay at all, but the broker counts down: the faults are quiet after the last.
        self._faults.delay(HEARTBEAT_APIS[self._protocol], 0, times=HEARTBEATS_OF_TWO_SESSIONS)
        until(lambda: self._faults.is_quiet, lambda: "the heartbeats ended")
        assert CLOCK.monotonic_ms() - begin_ms > SESSION_SECONDS * 1000


@pytest.fixture(params=PROTOCOLS)
def place(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Place:
    name = f"topic-{abs(hash(request.node.name)) % 10**9}"
    broker.create_topic(name, partitions=PARTITIONS)
    return Place(broker, name, request.param)


def join(*consumers: Consumer, counts: tuple[int, ...]) -> None:
    """Poll until each has so many partitions; they read nothing meanwhile."""
    end_ms = CLOCK.monotonic_ms() + PATIENCE_MS
    while tuple(len(each.assignment()) for each in consumers) != counts:
        assert CLOCK.monotonic_ms() < end_ms, [each.assignment() for each in consumers]
        for each in consumers:
            each.poll(0.02)


def test_what_one_has_read_the_next_one_does_not_read_again(place: Place) -> None:
    place.produce(0, 100)
    seen: list[bytes | None] = []
    with place.consumer() as first:
        while len(seen) < 60:
            seen += [each.value for each in first.poll(5, max_records=20)]
    with place.consumer() as second:
        while len(seen) < 100:
            seen += [each.value for each in second.poll(5)]

    assert sorted(int(each or b"") for each in seen) == list(range(100))


def test_members_that_come_and_go_lose_nothing_and_repeat_nothing(place: Place) -> None:
    seen: list[int] = []
    with place.consumer() as first:
        place.produce(0, 200)
        seen += [int(each.value or b"") for each in first.poll(5, max_records=50)]
        with place.consumer() as second:
            for _ in range(400):
                for each in (first, second):
                    seen += [int(record.value or b"") for record in each.poll(0.02, max_records=7)]
                if len(first.assignment()) == len(second.assignment()) == 2:
                    break
            place.produce(200, 200)
            while len(seen) < 300:
                for each in (first, second):
                    seen += [int(record.value or b"") for record in each.poll(0.02, max_records=7)]
        while len(seen) < 400:
            seen += [int(record.value or b"") for record in first.poll(5)]

    assert sorted(seen) == list(range(400))


class Diary(RebalanceListener):
    """Writes down what it is told, and commits at the last moment."""

    def __init__(self, consumer: Consumer | None = None) -> None:
        self.consumer = consumer
        self.entries: list[tuple[str, int]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("revoked", len(partitions)))
        if self.consumer is not None:
            self.consumer.commit({each: OffsetAndMetadata(41) for each in partitions})

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("lost", len(partitions)))


def test_a_listener_may_commit_what_is_about_to_go(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as first, place.consumer() as second:
        diary = Diary(first)
        first.subscribe(place.topic, listener=diary)
        second.unsubscribe()
        join(first, counts=(PARTITIONS,))
        second.subscribe(place.topic)
        join(first, second, counts=(2, 2))

        taken = second.assignment()
        committed = {each.offset for each in second.committed(taken).values() if each}
        assert committed == {41}
        assert ("assigned", PARTITIONS) in diary.entries
        assert any(what == "revoked" for what, _ in diary.entries)


def test_a_member_that_works_for_long_stays_in_its_group(place: Place) -> None:
    diary = Diary()
    with place.consumer() as busy:
        busy.subscribe(place.topic, listener=diary)
        join(busy, counts=(PARTITIONS,))

        place.let_two_sessions_pass()  # Nobody polls: the heartbeats go on.
        busy.poll(0.2)

        assert diary.entries == [("assigned", PARTITIONS)]
        assert len(busy.assignment()) == PARTITIONS


def test_a_member_that_works_for_too_long_is_told_when_it_commits(place: Place) -> None:
    place.produce(0, 8)
    diary = Diary()
    with place.consumer(max_poll_interval=0.5) as slow:
        slow.subscribe(place.topic, listener=diary)
        records = slow.poll(PATIENCE_MS / 1000)
        assert records
        with Admin(place.address) as admin:
            until(lambda: not admin.describe_group(slow.group_metadata().group_id).members)

        with pytest.raises(CommitFailed, match="was not called in time"):
            slow.commit()
        join(slow, counts=(PARTITIONS,))

    assert ("lost", PARTITIONS) in diary.entries


def test_a_second_consumer_with_the_same_instance_id_puts_the_first_of_a_classic_group_out(
    broker: EmbeddedBroker,
) -> None:
    broker.create_topic("instances", partitions=PARTITIONS)
    place = Place(broker, "instances", "classic")
    with place.consumer(group_instance_id="one") as first:
        join(first, counts=(PARTITIONS,))
        with place.consumer(group_instance_id="one") as second:
            join(second, counts=(PARTITIONS,))
            with pytest.raises(FencedInstanceId):
                poll_again_and_again(first)


def poll_again_and_again(consumer: Consumer) -> None:
    end_ms = CLOCK.monotonic_ms() + PATIENCE_MS
    while CLOCK.monotonic_ms() < end_ms:
        consumer.poll(0.05)


def test_a_transaction_commits_on_behalf_of_the_group(place: Place) -> None:
    place.produce(0, 4)
    with place.consumer(enable_auto_commit=False) as consumer:
        join(consumer, counts=(PARTITIONS,))
        partition = TopicPartition(place.topic, 0)
        producer = Producer(place.address, transactional_id=f"tx-{place.topic}")
        with producer, producer.transaction():
            producer.send_offsets_to_transaction(
                {partition: OffsetAndMetadata(1)}, consumer.group_metadata()
            )

        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(1)}


def test_an_event_loop_that_is_blocked_stays_in_its_group(place: Place) -> None:
    async def work() -> frozenset[TopicPartition]:
        async with AsyncConsumer(place.address, place.topic, **place.settings) as consumer:
            while len(consumer.assignment()) < PARTITIONS:
                await consumer.poll(0.05)
            epoch = consumer.group_metadata().generation_id
            place.let_two_sessions_pass()  # The loop is blocked, which is the point.
            await consumer.poll(0.2)
            assert consumer.group_metadata().generation_id == epoch
            return consumer.assignment()

    assert len(asyncio.run(work())) == PARTITIONS


def test_heartbeats_leave_while_the_interpreter_is_busy(place: Place) -> None:
    diary = Diary()
    is_done = threading.Event()

    def spin() -> None:
        while not is_done.is_set():
            sum(range(20_000))

    with place.consumer() as consumer:
        consumer.subscribe(place.topic, listener=diary)
        join(consumer, counts=(PARTITIONS,))
        spinners = [threading.Thread(target=spin) for _ in range(2)]
        for each in spinners:
            each.start()
        place.let_two_sessions_pass()
        is_done.set()
        for each in spinners:
            each.join()
        consumer.poll(0.2)

    assert diary.entries[0] == ("assigned", PARTITIONS)
    assert "lost" not in [what for what, _ in diary.entries]
