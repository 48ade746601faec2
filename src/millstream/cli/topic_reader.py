"""`TopicReader`: the records of some partitions through a `Consumer`, from here to there.

`consume` reads with one. The consumer fetches, finds leaders and leaves out what is aborted; this
knows where to end, and what to do about offsets that were deleted before they could be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.faults import CommandFailed
from millstream.errors import OffsetOutOfRangeWithoutReset
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.client.consumer.consumer import Consumer
    from millstream.records.kernel import ConsumerRecord


class Span(NamedTuple):
    """What to read of a partition: from `start` up to and without `end`; None never ends."""

    start: int
    end: int | None


class TopicReader:
    """Where a reader of a topic is."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        spans: Mapping[int, Span],
        *,
        until_ms: int | None = None,
        on_gap: Callable[[int, int, int], None] = lambda partition, start, end: None,
    ) -> None:
        """A partition ends at its span's end, or at the first record that is not before `until_ms`.

        The consumer must not choose another position by itself. `on_gap` hears of offsets that
        were deleted before they could be read.
        """
        self._consumer = consumer
        self._topic = topic
        self._until_ms = until_ms
        self._on_gap = on_gap
        self.is_idle = False
        """Whether the last round brought nothing at all."""
        wanted = {
            TopicPartition(topic, partition): span
            for partition, span in spans.items()
            if span.end is None or span.start < span.end
        }
        self._ends = {each: span.end for each, span in wanted.items()}
        consumer.assign(wanted)
        for each, span in wanted.items():
            consumer.seek(each, span.start)

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to read."""
        return not self._ends

    @property
    def partitions(self) -> list[int]:
        """Those that are still read."""
        return [each.partition for each in self._ends]

    def poll(self, wait_ms: int) -> Iterator[ConsumerRecord]:
        """One round: records, at once or when the first ones arrive in time."""
        try:
            records = self._consumer.poll(wait_ms / 1000)
        except OffsetOutOfRangeWithoutReset:
            self._pass_over_what_is_gone()
            self.is_idle = False
            return
        self.is_idle = not records
        for record in records:
            place = TopicPartition(self._topic, record.partition)
            if place not in self._ends:
                continue
            if self._is_end(record, self._ends[place]):
                self._finish(place)
            else:
                yield record
        self._drop_finished()

    def commit(self) -> None:
        """Nothing: it has no group that remembers where it is."""

    def close(self) -> None:
        """Drop what was fetched and not wanted: nothing of it may outlive the consumer."""
        self._consumer.assign([])

    def _is_end(self, record: ConsumerRecord, end: int | None) -> bool:
        if end is not None:
            return record.offset >= end
        return self._until_ms is not None and record.timestamp >= self._until_ms

    def _drop_finished(self) -> None:
        # By position, not by record: the last offsets may be markers, or compacted away.
        for place, end in list(self._ends.items()):
            if end is not None and self._consumer.position(place) >= end:
                self._finish(place)

    def _finish(self, place: TopicPartition) -> None:
        del self._ends[place]
        self._consumer.pause([place])

    def _pass_over_what_is_gone(self) -> None:
        starts = self._consumer.beginning_offsets(self._ends)
        positions = {each: self._consumer.position(each) for each in self._ends}
        gone = {each: at for each, at in positions.items() if at < starts[each]}
        if not gone:
            place, position = max(positions.items(), key=lambda item: item[1])
            raise CommandFailed(
                f"{place} now ends before offset {position}: was the topic created anew? "
                "Read again from the beginning"
            )
        for place, position in gone.items():
            self._on_gap(place.partition, position, starts[place])
            self._consumer.seek(place, starts[place])
        self._drop_finished()
