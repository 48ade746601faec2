"""Where micro-batches end: limits, new partitions, losses, and waiting when there is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import RecordsLost, UnknownTopicOrPartition
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.planning import OffsetRange
from millstream.spark.source.stream_offsets import DISCOVERY_MS, StreamOffsets
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.spark.source.offsets import Offsets

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class FakeTopics:
    """Logs that tests move by hand."""

    def __init__(self, **ends: int) -> None:
        self.ends: Offsets = {TopicPartition("a", int(name[1:])): end for name, end in ends.items()}
        self.first: Offsets = {}
        self.waits: list[float] = []
        self.arriving: Offsets = {}
        self.is_closed = False

    def partitions(self, *, is_any_missing_fine: bool = False) -> list[TopicPartition]:
        if not self.ends and not is_any_missing_fine:
            raise UnknownTopicOrPartition("there is no topic 'a'")
        return sorted(self.ends)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self.first.get(each, 0) for each in self._existing(partitions)}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self.ends[each] for each in self._existing(partitions)}

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(partitions)
        if missing := set(wanted) - self.ends.keys():
            raise UnknownTopicOrPartition(f"{missing}: not there")
        return wanted

    def start(self, partitions: Collection[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 3)

    def wait_for_records(self, ends: Offsets, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self.ends.update(self.arriving)
        return bool(self.arriving)

    def close(self) -> None:
        self.is_closed = True


class World:
    """A query's offsets over fake topics, and the time."""

    def __init__(self, topics: FakeTopics, **options: Any) -> None:
        given = {"kafka.bootstrap.servers": "x:1", "subscribe": "a", **options}
        self.topics = topics
        self.clock = ManualClock()
        self.offsets = StreamOffsets(SourceOptions.parse(given, is_stream=True), topics, self.clock)

    def next_end(self, *, is_limited: bool = True, **start: int) -> dict[int, int]:
        begin = {TopicPartition("a", int(name[1:])): offset for name, offset in start.items()}
        found = self.offsets.next_end(begin, is_limited=is_limited)
        return {each.partition: offset for each, offset in found.items()}


def test_a_query_begins_where_the_options_say() -> None:
    assert World(FakeTopics(p0=9)).offsets.initial() == {A0: 3}


def test_a_micro_batch_ends_at_the_ends_and_they_are_reported() -> None:
    world = World(FakeTopics(p0=9, p1=4))

    assert world.next_end(p0=3, p1=4) == {0: 9, 1: 4}
    assert world.offsets.last_seen == {A0: 9, A1: 4}


def test_a_limit_holds_unless_the_trigger_wants_everything() -> None:
    world = World(FakeTopics(p0=100, p1=100), maxOffsetsPerTrigger="20")

    assert world.next_end(p0=0, p1=0) == {0: 10, 1: 10}
    assert world.next_end(p0=0, p1=0, is_limited=False) == {0: 100, 1: 100}


def test_a_new_partition_is_found_and_read_from_its_first_offset() -> None:
    world = World(FakeTopics(p0=5), maxOffsetsPerTrigger="100")
    assert world.next_end(p0=3) == {0: 5}
    world.topics.ends[A1] = 8
    world.topics.first[A1] = 2

    assert world.next_end(p0=3) == {0: 5}
    world.clock.advance(DISCOVERY_MS)

    assert world.next_end(p0=3) == {0: 5, 1: 8}
    assert world.offsets.plan({A0: 3}, {A0: 5, A1: 8}) == [
        OffsetRange("a", 0, 3, 5),
        OffsetRange("a", 1, 2, 8),
    ]


def test_an_idle_query_waits_at_the_broker_and_goes_on_when_something_comes() -> None:
    world = World(FakeTopics(p0=5), idleWaitMs="300")
    assert world.next_end(p0=5) == {0: 5}
    assert world.topics.waits == []

    assert world.next_end(p0=5) == {0: 5}
    world.topics.arriving = {A0: 6}
    assert world.next_end(p0=5) == {0: 6}

    assert world.topics.waits == [0.3, 0.3]


def test_nobody_waits_while_another_source_of_the_query_is_active() -> None:
    world = World(FakeTopics(p0=5))
    world.next_end(p0=5)

    world.offsets.note_activity()
    world.next_end(p0=5)
    assert world.topics.waits == []
    world.next_end(p0=5)
    assert len(world.topics.waits) == 1


def test_waiting_can_be_turned_off() -> None:
    world = World(FakeTopics(p0=5), idleWaitMs="0")
    for _ in range(3):
        world.next_end(p0=5)

    assert world.topics.waits == []


def test_a_least_number_holds_a_batch_back_for_a_while() -> None:
    world = World(FakeTopics(p0=5), minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert world.next_end(p0=0) == {0: 0}

    world.clock.advance(59_000)
    assert world.next_end(p0=0) == {0: 0}
    world.clock.advance(1_000)
    assert world.next_end(p0=0) == {0: 5}

    world.topics.ends[A0] = 15
    assert world.next_end(p0=5) == {0: 15}
    world.topics.ends[A0] = 16
    assert world.next_end(p0=15) == {0: 15}
    assert world.next_end(p0=15, is_limited=False) == {0: 16}


def test_available_now_reads_what_was_there_and_then_no_more() -> None:
    world = World(FakeTopics(p0=5, p1=5), maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    world.offsets.stop_at_present_ends()
    world.topics.ends[A0] = 100
    world.clock.advance(DISCOVERY_MS)

    assert world.next_end(p0=0, p1=0) == {0: 3, 1: 3}
    assert world.next_end(p0=3, p1=3) == {0: 5, 1: 5}
    assert world.next_end(p0=5, p1=5) == {0: 5, 1: 5}
    assert world.topics.waits == []


def test_a_partition_that_is_gone_is_a_loss() -> None:
    world = World(FakeTopics(p0=5))

    with pytest.raises(RecordsLost, match="a-1 existed when the query read last"):
        world.next_end(p0=0, p1=7)

    lenient = World(FakeTopics(p0=5), failOnDataLoss="false")
    assert lenient.next_end(p0=0, p1=7) == {0: 5}


def test_a_partition_that_goes_between_two_looks_is_a_loss_too() -> None:
    lenient = World(FakeTopics(p0=5, p1=7), failOnDataLoss="false")
    assert lenient.next_end(p0=0, p1=0) == {0: 5, 1: 7}
    del lenient.topics.ends[A1]

    assert lenient.next_end(p0=0, p1=7) == {0: 5}


def test_a_micro_batch_that_was_planned_before_its_topic_was_deleted_goes_on_without_it() -> None:
    lenient = World(FakeTopics(p0=5), failOnDataLoss="false")
    start, end = {A0: 0, A1: 0}, {A0: 5, A1: 7}

    assert lenient.offsets.plan(start, end) == [OffsetRange("a", 0, 0, 5)]
    with pytest.raises(RecordsLost, match="a-1 existed when the query read last"):
        World(FakeTopics(p0=5)).offsets.plan(start, end)


@pytest.mark.parametrize("is_available_now", [False, True])
def test_topics_must_be_there_at_first_and_may_go_later(is_available_now: bool) -> None:
    fresh, going_on = World(FakeTopics()), World(FakeTopics(), failOnDataLoss="false")
    if is_available_now:
        fresh.offsets.stop_at_present_ends()
        going_on.offsets.stop_at_present_ends()

    with pytest.raises(UnknownTopicOrPartition, match="there is no topic"):
        fresh.offsets.initial()
    with pytest.raises(RecordsLost, match="a-0 existed when the query read last"):
        fresh.next_end(p0=7)
    assert going_on.next_end(p0=7) == {}


def test_a_log_that_ends_before_what_was_read_is_a_loss() -> None:
    world = World(FakeTopics(p0=5))

    with pytest.raises(RecordsLost, match=r"offset 9 was read .* the log now ends at 5"):
        world.next_end(p0=9)

    lenient = World(FakeTopics(p0=5), failOnDataLoss="false")
    assert lenient.next_end(p0=9) == {0: 5}
    assert lenient.offsets.plan({A0: 9}, {A0: 5}) == []


def test_offsets_that_were_deleted_are_a_loss_that_says_how_to_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = FakeTopics(p0=50)
    topics.first[A0] = 20

    with pytest.raises(RecordsLost, match=r"offsets 10 to 19 are gone.*failOnDataLoss=false"):
        World(topics).offsets.plan({A0: 10}, {A0: 50})

    lenient = World(topics, failOnDataLoss="false")
    assert lenient.offsets.plan({A0: 10}, {A0: 50}) == [OffsetRange("a", 0, 20, 50)]
    assert lenient.offsets.plan({A0: 10}, {A0: 15}) == []
    assert "the offsets 10 to 14 are gone" in caplog.text


def test_closing_hangs_up() -> None:
    world = World(FakeTopics(p0=1))

    world.offsets.close()

    assert world.topics.is_closed
