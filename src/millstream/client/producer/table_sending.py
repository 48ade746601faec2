"""Tables into the accumulator: any Arrow data, chunk by chunk, without a Python step per row.

Both APIs drive `TableSender`: it appends what can be appended, and says what it must wait for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.client.producer.delivery import BatchDelivery
from millstream.client.producer.partition_queues import ANY_PARTITION, TopicNotKnown
from millstream.errors import InvalidArgument
from millstream.records.arrow import ArrowRecordsReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.core import ProducerCore
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.records.arrow import ArrowChunk

SLICE_ROWS: Final = 1 << 15
"""Rows that are sorted by partition at once: what is done once for each such part is little then,
and a partition's share of them is about a batch, which is how long the accumulator is kept busy."""
BYTES_AHEAD: Final = 4 << 20
"""How much of a table is in full batches that are not acknowledged, for each broker. That keeps its
connection busy; more would only be memory that is far from the caches, which is slower to fill."""
PACE_SECONDS_MAX: Final = 1.0
"""How long a table waits for that. Brokers that take longer are not waited for: then the rest of
the table goes as far as memory does, as records do."""


class TooFarAhead(Exception):
    """Enough of a table is on its way: go on when this batch is done, or after a while."""

    def __init__(self, batch: ProducerBatch) -> None:
        super().__init__(batch)
        self.batch = batch


class TableSender:
    """One table on its way into batches.

    `send` raises TopicNotKnown or MemoryNotFree, as `append` does, or TooFarAhead; called again
    after the wait, it goes on where it was.
    """

    def __init__(self, core: ProducerCore, topic: str, table: object) -> None:
        if not core.is_plain:
            raise InvalidArgument(
                "send_batch sends rows as they are: it does not go with serializers, "
                "interceptors or a partitioner; give the producer none"
            )
        self.topic = topic
        self._accumulator = core.accumulator
        self._uses_keys = not core.config.partitioner_ignore_keys
        self._chunks: Iterator[ArrowChunk] = iter(ArrowRecordsReader(table))
        self._chunk: ArrowChunk | None = None
        self._row = 0
        self._goes_by_key = True
        """Whether the accumulator finds the partitions of the chunk's rows itself."""
        self._rows: memoryview | None = None
        self._places: list[tuple[int, int, int]] = []
        self._ranges: list[tuple[ProducerBatch, int, int]] = []
        self._under_way: deque[tuple[ProducerBatch, int]] = deque()
        self._bytes_under_way = 0
        self._bytes_ahead = BYTES_AHEAD * max(1, len(core.runtime.metadata.snapshot.brokers))
        self._awaited: ProducerBatch | None = None

    def send(self, reservation: Reservation | None = None) -> BatchDelivery:
        """Append all rows that are left."""
        while self._places or self._advance(reservation):
            partition, start, stop = self._places[-1]
            assert self._chunk is not None
            batch, first, taken = self._accumulator.append_rows(
                self.topic, partition, self._chunk, self._rows, start, stop, reservation
            )
            if taken:
                self._ranges.append((batch, first, taken))
            if start + taken == stop:
                self._places.pop()
            else:
                self._places[-1] = (partition, start + taken, stop)
            reservation = None
            if batch.is_closed:
                self._pace(batch)
        return BatchDelivery(self.topic, self._ranges)

    def _pace(self, batch: ProducerBatch) -> None:
        """A batch is full: count what is under way, and wait until half of it is done."""
        under_way = self._under_way
        size = batch.size
        under_way.append((batch, size))
        self._bytes_under_way += size
        while under_way and under_way[0][0].is_done:
            self._bytes_under_way -= under_way.popleft()[1]
        is_too_slow = self._awaited is not None and not self._awaited.is_done
        if self._bytes_under_way > self._bytes_ahead and not is_too_slow:
            self._awaited = under_way[len(under_way) // 2][0]
            raise TooFarAhead(self._awaited)

    def _advance(self, reservation: Reservation | None) -> bool:
        """Look at the next rows; False if there are none."""
        while True:
            while self._chunk is None or self._row >= len(self._chunk):
                self._chunk = next(self._chunks, None)
                self._row, self._goes_by_key = 0, True
                if self._chunk is None:
                    return False
            chunk, stop = self._chunk, min(self._row + SLICE_ROWS, len(self._chunk))
            has_keys = self._uses_keys and chunk.has_key
            if has_keys and self._goes_by_key:
                if self._append_by_key(chunk, reservation):
                    reservation = None
                    continue
                if self._goes_by_key:
                    stop = self._row + 1  # Something is wrong with it.
            if has_keys or chunk.has_partition:
                self._spread(chunk, stop)
            else:
                self._rows, self._places = None, [(ANY_PARTITION, self._row, stop)]
            self._row = stop
            return True

    def _append_by_key(self, chunk: ArrowChunk, reservation: Reservation | None) -> bool:
        """Have the accumulator find the partitions of rows; False if it cannot."""
        begin = self._row
        stop = min(begin + SLICE_ROWS, len(chunk))
        appended = self._accumulator.append_by_key(self.topic, chunk, begin, stop, reservation)
        if appended is None:
            self._goes_by_key = False
            return False
        self._row, ranges, full = appended
        self._ranges += ranges
        if full is not None:
            self._pace(full)
        return self._row > begin or full is not None

    def _spread(self, chunk: ArrowChunk, stop: int) -> None:
        count = self._accumulator.partition_count(self.topic)
        if count is None:
            raise TopicNotKnown(self.topic)
        self._rows, places = chunk.spread(self._row, stop, count, self._uses_keys)
        self._places = places[::-1]
