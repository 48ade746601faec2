"""`RangeReading`: ranges of offsets of partitions, read into Arrow columns in steps.

`TopicReader` and `AsyncTopicReader` read with it, each in its own way of waiting. It reads in the
session of a consumer without a group; nothing is committed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.client.arguments import to_timestamp
from millstream.client.consumer.bounds import Ends, Span, bound_of, offset_of
from millstream.client.consumer.starting_point import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    AtOffset,
)
from millstream.errors import ClientClosed, ConcurrentUse, InvalidArgument, OperationTimeout
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from millstream.client.consumer.bounds import Bound, Bounds
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.client.consumer.session import ConsumerSession
    from millstream.client.consumer.steps import Steps
    from millstream.records.kernel import ArrowRecordsBuilder
    from millstream.types import ReadableBuffer

CHUNK_BYTES: Final = 4 << 20
"""How much of keys, values and headers one chunk has, about."""


class RowBuilder(Protocol):
    """What rows are put into: the kernel's `ArrowRecordsBuilder`, or what wraps one."""

    @property
    def row_count(self) -> int:
        """Rows so far."""

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers so far."""

    def expect(self, size: int) -> None:
        """About so many bytes will come."""

    def append(
        self,
        body: ReadableBuffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        partition: int,
        from_offset: int,
        to_offset: int,
    ) -> int:
        """The records of a batch that lie between two offsets; how many those are."""


class RangeReading:
    """Ranges under way in a session. Call `fill` until `is_done`, then `end`."""

    def __init__(
        self,
        session: ConsumerSession,
        spans: Mapping[TopicPartition, Span],
        builder: RowBuilder,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        timeout_s: float = 30.0,
    ) -> None:
        """Begin to fetch; `timeout_s` is how long nothing may arrive."""
        if session.buffer.is_assigned():
            raise ConcurrentUse(
                "this reader is reading already: read that to its end or close it first, or use "
                "a second reader"
            )
        self._session = session
        self._builder = builder
        self._chunk_bytes = chunk_bytes
        self._timeout_s = timeout_s
        wanted = {each: span for each, span in spans.items() if span.start < span.end}
        self._left = {session.to_wire(each): span.end for each, span in wanted.items()}
        self._positions = {session.to_wire(each): span.start for each, span in wanted.items()}
        session.assign_at(
            {each: AtOffset(span.start, until=span.end) for each, span in wanted.items()}
        )

    @property
    def is_done(self) -> bool:
        """Whether every range was read to its end."""
        return not self._left

    def position(self, partition: TopicPartition) -> int:
        """The offset before which everything of a partition was read."""
        return self._positions[self._session.to_wire(partition)]

    def fill(self) -> Steps[None]:
        """Put the next rows into the builder: a chunk, or none if the log has a gap there."""
        has_moved = yield from self._session.poll_with(self._timeout_s, self._take)
        if not has_moved:
            raise self._nothing_came()
        self._stop(each for each, end in list(self._left.items()) if self._positions[each] >= end)

    def _take(self) -> bool:
        """Whether a position has moved: over rows, or over offsets that have none."""
        buffer = self._session.buffer
        self._builder.expect(min(buffer.byte_count, self._chunk_bytes))
        # The kernel calls nothing else of a builder.
        builder = cast("ArrowRecordsBuilder", self._builder)
        buffer.take_arrow(builder, self._chunk_bytes, self._left)
        before = {each: self._positions[each] for each in self._left}
        now = {each: buffer.position(each) for each in self._left}
        self._positions |= {each: at for each, at in now.items() if at is not None}
        return any(self._positions[each] != at for each, at in before.items())

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Leave out what lies before an offset, for records that are not there any more."""
        where = self._session.to_wire(partition)
        end = self._left[where]
        self._positions[where] = min(offset, end)
        if offset >= end:
            self._stop([where])
        else:
            self._session.seek(partition, AtOffset(offset, until=end))

    def end(self) -> None:
        """Read no more; again is fine, also of a reader that was closed."""
        with suppress(ClientClosed):
            self._stop(list(self._left))

    def _stop(self, partitions: Iterable[TopicPartition]) -> None:
        finished = list(partitions)
        for partition in finished:
            del self._left[partition]
        if finished:
            self._session.unassign(finished)

    def _nothing_came(self) -> OperationTimeout:
        names = ", ".join(f"{each} up to {end}" for each, end in sorted(self._left.items()))
        return OperationTimeout(
            f"nothing arrived for {self._timeout_s:g} s; still to be read: {names}"
        )


def find_spans(
    session: ConsumerSession,
    topic: str,
    start: Bounds,
    end: Bounds,
    partitions: Collection[int] | None,
    timeout_s: float,
) -> Steps[dict[TopicPartition, Span]]:
    """What to read of each partition: times and ends of logs become offsets, once."""
    count = yield from session.partition_count(topic, timeout_s)
    wanted = [TopicPartition(topic, each) for each in _numbers(topic, count, partitions)]
    if not wanted:
        return {}
    starts = {each: bound_of(start, each.partition, "start", "earliest") for each in wanted}
    stops = {each: bound_of(end, each.partition, "end", "latest") for each in wanted}
    first = yield from session.find_offsets(dict.fromkeys(wanted, EARLIEST_TIMESTAMP), timeout_s)
    last = yield from session.find_offsets(dict.fromkeys(wanted, LATEST_TIMESTAMP), timeout_s)
    found_starts = yield from _find_times(session, starts, timeout_s)
    found_stops = yield from _find_times(session, stops, timeout_s)
    spans = {}
    for each in wanted:
        ends = Ends(_offset(first[each]), _offset(last[each]))
        at = offset_of(starts[each], each, ends, found_starts.get(each), "start")
        stop = offset_of(stops[each], each, ends, found_stops.get(each), "end")
        spans[each] = Span(at, stop)
    return spans


def _numbers(topic: str, count: int, wanted: Collection[int] | None) -> list[int]:
    if wanted is None:
        return list(range(count))
    if any(not 0 <= each < count for each in wanted):
        raise InvalidArgument(
            f"partitions={sorted(wanted)}: {topic!r} has {count} partitions, from 0 on"
        )
    return sorted(set(wanted))


def _find_times(
    session: ConsumerSession, bounds: Mapping[TopicPartition, Bound], timeout_s: float
) -> Steps[dict[TopicPartition, FoundOffset | None]]:
    times = {
        each: to_timestamp(bound)
        for each, bound in bounds.items()
        if not isinstance(bound, int | str)
    }
    if not times:
        return {}
    found = yield from session.find_offsets(times, timeout_s)
    return found


def _offset(found: FoundOffset | None) -> int:
    return 0 if found is None else found.offset
