"""The offsets of a streaming query on its driver: where micro-batches end, what is new or lost.

`TopicStreamReader` asks it on Spark's behalf. It finds new partitions, keeps the limits of
micro-batches, and waits at the broker when there is nothing to do. It is told the time and knows
nothing of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import UnknownTopicOrPartition
from millstream.spark.source.data_loss import check_starts, report_loss, truncated, vanished
from millstream.spark.source.planning import count_offsets, limit_ends, ranges_between

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from millstream.clock import Clock
    from millstream.spark.source.offsets import Offsets
    from millstream.spark.source.options import SourceOptions
    from millstream.spark.source.planning import OffsetRange
    from millstream.types import TopicPartition

DISCOVERY_MS: Final = 1_000
"""How often partitions that are new are looked for."""


class Topics(Protocol):
    """What answers about topics: `TopicOffsets`, or a test's stand-in."""

    def partitions(self, *, is_any_missing_fine: bool = False) -> list[TopicPartition]:
        """All that are selected; those that are there, or an error if any is not."""
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Their first offsets."""
        ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Their ends."""
        ...

    def start(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the options begin."""
        ...

    def wait_for_records(self, ends: Offsets, timeout_s: float) -> bool:
        """Whether something came behind the ends."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class StreamOffsets:
    """Decides the offsets of one query."""

    def __init__(self, options: SourceOptions, topics: Topics, clock: Clock) -> None:
        self._options = options
        self._topics = topics
        self._clock = clock
        self._partitions: list[TopicPartition] = []
        self._discover_at_ms: int | None = None
        self._final_ends: Offsets | None = None
        self._held_since_ms: int | None = None
        self._has_been_active = True
        self.last_seen: Offsets = {}
        """The ends as they were last seen."""

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        self._partitions = self._topics.partitions()
        return self._topics.start(self._partitions)

    def stop_at_present_ends(self) -> None:
        """Behave as if nothing were written from now on."""
        self._final_ends = self._ask(self._topics.latest)
        self.last_seen = self._final_ends

    def note_activity(self) -> None:
        """A micro-batch has run: some source of the query has records, if not this one."""
        self._has_been_active = True

    def next_end(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Where a micro-batch that begins at `start` ends; `start` itself if there is none."""
        ends = self._ends(start)
        if self._final_ends is not None:
            return self._limited(start, ends, is_limited=is_limited)
        if self._is_held(start, ends, is_limited=is_limited) and self._wait(ends):
            ends = self._ends(start)
        if self._is_held(start, ends, is_limited=is_limited):
            return start
        self._held_since_ms = None
        return self._limited(start, ends, is_limited=is_limited)

    def plan(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What to read for a micro-batch; losses are reported."""
        self.note_activity()
        first = self._ask(self._topics.earliest)
        end = self._without_gone(end, first)
        new = [each for each in end if each not in start]
        starts = {**start, **{each: first[each] for each in new}}
        starts = check_starts(starts, end, first, is_fatal=self._options.fail_on_data_loss)
        return ranges_between(starts, end)

    def close(self) -> None:
        """Hang up."""
        self._topics.close()

    # ---- partitions and their ends ----

    def _discover(self) -> list[TopicPartition]:
        """What is there. A query that has begun is told of what is not, as of any loss."""
        now_ms = self._clock.monotonic_ms()
        if self._discover_at_ms is None or now_ms >= self._discover_at_ms:
            self._partitions = self._topics.partitions(is_any_missing_fine=True)
            self._discover_at_ms = now_ms + DISCOVERY_MS
        return self._partitions

    def _ask(self, ask: Callable[[Iterable[TopicPartition]], Offsets]) -> Offsets:
        """Have offsets of all partitions told; one may have gone since they were looked for."""
        try:
            return ask(self._discover())
        except UnknownTopicOrPartition:
            self._discover_at_ms = None
            return ask(self._discover())

    def _without_gone(self, offsets: Offsets, there: Collection[TopicPartition]) -> Offsets:
        """Offsets of partitions that are there; others are a loss."""
        gone = offsets.keys() - set(there)
        if not gone:
            return offsets
        report_loss(vanished(gone), is_fatal=self._options.fail_on_data_loss)
        return {each: offset for each, offset in offsets.items() if each not in gone}

    def _ends(self, start: Offsets) -> Offsets:
        """The ends of all partitions, of those too that have appeared since `start`."""
        is_fatal = self._options.fail_on_data_loss
        if self._final_ends is not None:
            ends = dict(self._final_ends)
        else:
            ends = self._ask(self._topics.latest)
        self.last_seen = dict(ends)
        # What has appeared since the final ends were seen is no loss.
        self._without_gone(start, ends.keys() | set(self._partitions))
        for partition in start.keys() & ends.keys():
            if ends[partition] < start[partition]:
                report_loss(
                    truncated(partition, start[partition], ends[partition]), is_fatal=is_fatal
                )
        return ends

    # ---- how much ----

    def _limited(self, start: Offsets, ends: Offsets, *, is_limited: bool) -> Offsets:
        limit = self._options.max_offsets_per_trigger
        if not is_limited or limit is None:
            return ends
        return limit_ends(self._with_new(start, ends), ends, limit)

    def _with_new(self, start: Offsets, ends: Offsets) -> Offsets:
        """Where reading goes on, partitions included that are new and begin at their first."""
        new = [each for each in ends if each not in start]
        return {**start, **self._topics.earliest(new)} if new else start

    def _is_held(self, start: Offsets, ends: Offsets, *, is_limited: bool) -> bool:
        """Whether there is no micro-batch now: nothing new, or too little of it and time left."""
        if ends == start:
            return True
        least = self._options.min_offsets_per_trigger
        if least is None or not is_limited:
            return False
        if count_offsets(self._with_new(start, ends), ends) >= least:
            return False
        now_ms = self._clock.monotonic_ms()
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return now_ms - self._held_since_ms < self._options.max_trigger_delay_ms

    def _wait(self, ends: Offsets) -> bool:
        """Wait at the broker for records, unless another source may need the query's thread."""
        was_active, self._has_been_active = self._has_been_active, False
        if was_active or not self._options.idle_wait_ms:
            return False
        return self._topics.wait_for_records(ends, self._options.idle_wait_ms / 1000)
