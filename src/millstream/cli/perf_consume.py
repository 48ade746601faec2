"""The load of `millstream perf consume`: the next fetch is on its way while records are decoded.

`perf_run` turns it until it is done. Each connection reads the partitions it was given, from where
it was told on. It neither prints nor retries, and commits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.perf_meter import Meter
from millstream.cli.perf_pipe import answered
from millstream.errors import error_for_code
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.protocol.messages.fetch import FetchPartition, FetchTopic
from millstream.records import RecordBatch, split_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.cli.cluster_view import TopicView
    from millstream.cli.perf_pipe import Pipe
    from millstream.protocol.messages.fetch import PartitionData
    from millstream.types import ReadableBuffer

_TURN_S_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """How to read, and when to stop."""

    fetch_bytes: int
    partition_bytes: int
    min_bytes: int
    wait_ms: int
    records_max: int | None = None
    duration_ns: int | None = None
    is_decoding: bool = True
    """Whether records are looked at, or only the headers of batches."""


@dataclass(slots=True)
class Position:
    """Where reading a partition is, and where it shall end."""

    offset: int
    end: int | None = None
    """None to go on for ever."""

    @property
    def is_open(self) -> bool:
        """Whether there is more to read."""
        return self.end is None or self.offset < self.end


class _Piece(NamedTuple):
    """What a fetch brought of one partition."""

    records: ReadableBuffer
    from_offset: int


class ConsumeLoad:
    """Reads through any number of connections, each with one fetch on its way."""

    def __init__(
        self,
        topic: TopicView,
        assigned: Mapping[Pipe[int], Mapping[int, Position]],
        plan: FetchPlan,
        *,
        ticks: Callable[[], int],
    ) -> None:
        """`assigned` are the partitions that each connection reads."""
        self.meter = Meter()
        self._topic = topic
        self._assigned = assigned
        self._pipes = list(assigned)
        self._plan = plan
        self._ticks = ticks
        self._started_ns = ticks()
        self._is_ending = False
        self._todo = sum(
            each.end - each.offset
            for positions in assigned.values()
            for each in positions.values()
            if each.end is not None
        )
        for pipe in self._pipes:
            self._fetch(pipe)

    def turn(self) -> bool:
        """Wait for an answer, a bit; False when there is nothing more to read."""
        now_ns = self._ticks()
        if self._is_ending or self._has_enough(now_ns):
            return False
        for pipe in answered(self._pipes, _TURN_S_MAX, now_ns):
            self._take(pipe)
        return any(pipe.in_flight for pipe in self._pipes)

    def end(self) -> None:
        """Read no more; what is on its way is not waited for."""
        self._is_ending = True

    def progress(self) -> float | None:
        """How much is done, from 0 to 1; None if there is no end."""
        plan = self._plan
        shares = []
        if self._todo:
            left = sum(
                max(0, each.end - each.offset)
                for positions in self._assigned.values()
                for each in positions.values()
                if each.end is not None
            )
            shares.append(1 - left / self._todo)
        if plan.records_max is not None:
            shares.append(self.meter.records / plan.records_max)
        if plan.duration_ns is not None:
            shares.append((self._ticks() - self._started_ns) / plan.duration_ns)
        return min(1.0, max(shares)) if shares else None

    def _has_enough(self, now_ns: int) -> bool:
        plan = self._plan
        if plan.records_max is not None and self.meter.records >= plan.records_max:
            return True
        return plan.duration_ns is not None and now_ns - self._started_ns >= plan.duration_ns

    def _fetch(self, pipe: Pipe[int]) -> None:
        """Ask for more of what is open, if anything is."""
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=position.offset,
                partition_max_bytes=self._plan.partition_bytes,
            )
            for index, position in self._assigned[pipe].items()
            if position.is_open
        ]
        if not partitions:
            return
        topic = FetchTopic(
            topic=self._topic.name, topic_id=self._topic.topic_id, partitions=partitions
        )
        request = FetchRequest(
            max_wait_ms=self._plan.wait_ms,
            min_bytes=self._plan.min_bytes,
            max_bytes=self._plan.fetch_bytes,
            topics=[topic],
        )
        now_ns = self._ticks()
        pipe.post(request, now_ns, now_ns)

    def _take(self, pipe: Pipe[int]) -> None:
        sent_ns, response = pipe.take(FetchResponse)
        latency_ns = self._ticks() - sent_ns
        if response.error_code:
            raise error_for_code(response.error_code)
        positions = self._assigned[pipe]
        pieces = [
            self._advance(positions[data.partition_index], data)
            for topic in response.responses
            for data in topic.partitions
        ]
        # First the next request, then the work: the broker need not wait for us.
        self._fetch(pipe)
        counts = [self._digest(piece) for piece in pieces]
        size = sum(len(piece.records) for piece in pieces)
        if size:  # An empty answer tells how long the broker waited, not how long it took.
            self.meter.time(latency_ns)
            self.meter.add(sum(counts), size, size)

    def _advance(self, position: Position, data: PartitionData) -> _Piece:
        if data.error_code:
            raise error_for_code(data.error_code)
        from_offset, records = position.offset, data.records or b""
        for batch in split_batches(records):
            position.offset = batch.next_offset
        return _Piece(records, from_offset)

    def _digest(self, piece: _Piece) -> int:
        """How many records there are; with a check of everything, unless that is not wanted."""
        count = 0
        for batch in split_batches(piece.records):
            if batch.is_control:
                continue
            if isinstance(batch, RecordBatch) and not self._plan.is_decoding:
                count += batch.record_count
                continue
            batch.check_crc()
            count += len(batch.records(piece.from_offset))
        return count
