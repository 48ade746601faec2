"""`TopicReader`: the records of some partitions in rounds of fetches, from here to there.

`consume` reads with one. Records of aborted transactions are left out where that is asked for;
control records always are. It keeps no offsets beyond its own life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.faults import CommandFailed
from millstream.cli.topic_io import EARLIEST, Isolation, fetch, list_offsets
from millstream.records import ControlType, RecordBatch, control_type, split_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.cli.session import Session
    from millstream.cli.topic_io import Fetched
    from millstream.records import LegacyBatch, Record


class Span(NamedTuple):
    """What to read of a partition: from `start` up to and without `end`; None never ends."""

    start: int
    end: int | None


class TopicReader:
    """Where a reader of a topic is."""

    def __init__(
        self,
        session: Session,
        topic: str,
        spans: Mapping[int, Span],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        until_ms: int | None = None,
        on_gap: Callable[[int, int, int], None] = lambda partition, start, end: None,
    ) -> None:
        """A partition ends at its span's end, or at the first record that is not before `until_ms`.

        `on_gap` hears of offsets that were deleted before they could be read.
        """
        self._session = session
        self._topic = topic
        self._isolation = isolation
        self._until_ms = until_ms
        self._on_gap = on_gap
        self.is_idle = False
        """Whether the last round brought nothing at all."""
        self._ends = {partition: span.end for partition, span in spans.items()}
        self._positions = {
            partition: span.start
            for partition, span in spans.items()
            if span.end is None or span.start < span.end
        }

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to read."""
        return not self._positions

    def poll(self, wait_ms: int) -> Iterator[tuple[int, Record]]:
        """One round: partitions and records, at once or when the first ones arrive in time."""
        fetched = fetch(
            self._session,
            self._topic,
            self._positions,
            wait_ms=wait_ms,
            isolation=self._isolation,
        )
        self.is_idle = not any(each.records or each.is_out_of_range for each in fetched)
        for each in fetched:
            if each.is_out_of_range:
                self._skip_what_is_gone(each.partition)
                continue
            for record in self._records(each):
                yield each.partition, record

    def _records(self, fetched: Fetched) -> Iterator[Record]:
        partition = fetched.partition
        end = self._ends[partition]
        for batch, is_visible in _batches(fetched):
            position = self._positions[partition]
            if batch.last_offset < position:
                continue
            if is_visible:
                for record in batch.records(position):
                    if self._is_end(record, end):
                        del self._positions[partition]
                        return
                    yield record
            self._positions[partition] = batch.next_offset
            if end is not None and batch.next_offset >= end:
                del self._positions[partition]
                return

    def _is_end(self, record: Record, end: int | None) -> bool:
        if end is not None:
            return record.offset >= end
        return self._until_ms is not None and record.timestamp >= self._until_ms

    def _skip_what_is_gone(self, partition: int) -> None:
        position = self._positions[partition]
        start = list_offsets(self._session, self._topic, [partition], EARLIEST)[partition].offset
        if start <= position:
            raise CommandFailed(
                f"{self._topic}-{partition} now ends before offset {position}: was the topic "
                "created anew? Read again from the beginning"
            )
        self._on_gap(partition, position, start)
        self._positions[partition] = start
        end = self._ends[partition]
        if end is not None and start >= end:
            del self._positions[partition]


def _batches(fetched: Fetched) -> Iterator[tuple[RecordBatch | LegacyBatch, bool]]:
    """The batches of a fetch, checked; and of each whether its records are for applications."""
    waiting = sorted(fetched.aborted, reverse=True)
    aborting: set[int] = set()
    for batch in split_batches(fetched.records):
        batch.check_crc()
        if not isinstance(batch, RecordBatch):
            yield batch, True
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            aborting.add(waiting.pop().producer_id)
        if batch.is_control:
            if ControlType.ABORT in map(control_type, batch.records()):
                aborting.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborting)
