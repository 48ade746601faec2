"""What a member of a group commits, when it is done, and how long it waits for its partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from millstream.cli.faults import CommandFailed
from millstream.cli.group_reader import GroupReader
from millstream.clock import ManualClock
from millstream.types import TopicPartition

TOPIC = "orders"


class Record(NamedTuple):
    partition: int
    offset: int


@dataclass
class FakeConsumer:
    """A member of a group whose coordinator is the test."""

    rounds: list[list[Record]] = field(default_factory=list)
    assigned: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics

    def unsubscribe(self) -> None:
        self.topics = []

    def assignment(self) -> frozenset[TopicPartition]:
        return self.assigned

    def position(self, place: TopicPartition, timeout: float) -> int:
        return self.positions.get(place, 0)

    def poll(self, timeout: float) -> list[Record]:
        return self.rounds.pop(0) if self.rounds else []

    def commit(self, offsets: dict[TopicPartition, int], timeout: float) -> None:
        self.commits.append(offsets)


@dataclass
class FakeSession:
    clock: ManualClock = field(default_factory=ManualClock)
    timeout_s: float = 5.0


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


def reader(session: Any, consumer: Any, ends: dict[int, int] | None) -> GroupReader:
    return GroupReader(session, consumer, TOPIC, ends)


def test_only_what_was_printed_is_committed_and_once(
    session: FakeSession, consumer: FakeConsumer
) -> None:
    consumer.assigned = frozenset({TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)})
    consumer.rounds = [[Record(0, 4), Record(1, 7), Record(0, 5)]]
    reading = reader(session, consumer, {0: 6, 1: 8})

    records = reading.poll(100)
    assert [next(records).offset, next(records).offset] == [4, 7]
    reading.commit()
    reading.commit()

    assert consumer.commits == [{TopicPartition(TOPIC, 0): 5, TopicPartition(TOPIC, 1): 8}]


def test_a_member_is_done_when_its_own_partitions_are(
    session: FakeSession, consumer: FakeConsumer
) -> None:
    own = TopicPartition(TOPIC, 1)
    reading = reader(session, consumer, {0: 6, 1: 8})
    assert not reading.is_finished

    consumer.assigned = frozenset({own})
    assert not reading.is_finished
    assert reading.partitions == [1]
    consumer.positions[own] = 8
    assert reading.is_finished


def test_following_never_ends(session: FakeSession, consumer: FakeConsumer) -> None:
    consumer.assigned = frozenset({TopicPartition(TOPIC, 0)})
    consumer.positions = {TopicPartition(TOPIC, 0): 100}

    assert not reader(session, consumer, None).is_finished


def test_waiting_for_partitions_is_not_silence_of_brokers_and_ends(
    session: FakeSession, consumer: FakeConsumer
) -> None:
    reading = reader(session, consumer, {0: 6})
    follower = reader(session, consumer, None)
    assert list(reading.poll(100)) == []
    assert not reading.is_idle
    session.clock.advance(5000)

    with pytest.raises(CommandFailed, match=r"no partition of orders in 5 s.*--follow waits"):
        list(reading.poll(100))
    assert list(follower.poll(100)) == []


def test_it_leaves_the_group_at_the_end(session: FakeSession, consumer: FakeConsumer) -> None:
    reading = reader(session, consumer, None)
    assert consumer.topics == [TOPIC]

    reading.close()

    assert consumer.topics == []
