"""The compiled way of a record joined with the accumulator, which does the rest.

`make_accumulator` chooses: the compiled way reads the machine's own clock, so whoever brings
another one, as simulations do, gets the plain accumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.client.producer import kernel
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import SystemClock
from millstream.records.kernel import BatchWriter

if TYPE_CHECKING or kernel.COMPILED:
    from millstream._accel.client.produce_sink import is_pinned
    from millstream._accel.client.record_accumulator import RecordAppender
else:

    class RecordAppender:
        """Stands for the compiled one where there is none; nobody makes a CompiledAccumulator."""


if TYPE_CHECKING:
    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.clock import Clock
    from millstream.records.arrow import ArrowChunk


def make_accumulator(*, clock: Clock, **settings: Any) -> RecordAccumulator:
    """A `RecordAccumulator`, compiled if it can be; takes what that one takes."""
    if not kernel.COMPILED or type(clock) is not SystemClock:
        return RecordAccumulator(clock=clock, **settings)
    return CompiledAccumulator(clock=clock, **settings)


class CompiledAccumulator(RecordAppender, RecordAccumulator):
    """`append` is `RecordAppender`'s, and batches are sent from where their records are."""

    def __init__(self, **settings: Any) -> None:
        RecordAccumulator.__init__(self, **settings)
        sink: Any = self.sink
        self.bind(
            self._topics,
            sink,
            RecordAccumulator.append,
            batch_size=self._batch_size,
            record_size_max=self._record_size_max,
            ignores_keys=self._ignores_keys,
        )

    # ---- tables ----

    def append_by_key(
        self,
        topic: str,
        chunk: ArrowChunk,
        start: int,
        stop: int,
        reservation: Reservation | None = None,
    ) -> tuple[int, list[tuple[ProducerBatch, int, int]], ProducerBatch | None] | None:
        """As the plain one says; this one does it."""
        try:
            with self._lock:
                self._queue_for(topic, 0, None)  # Or raise why there is none.
                return self._scatter(topic, chunk, start, stop, reservation)
        finally:
            self.sink.notify()

    def _scatter(
        self, topic: str, chunk: ArrowChunk, row: int, stop: int, reservation: Reservation | None
    ) -> tuple[int, list[tuple[ProducerBatch, int, int]], ProducerBatch | None] | None:
        now_ms = self._clock.wall_ms()
        ranges: list[tuple[ProducerBatch, int, int]] = []
        while True:
            scattered = self.scatter(topic, chunk, row, stop, now_ms, self._table_batch_size)
            if scattered is None:
                return None
            row, partition, more = scattered
            ranges += more
            if partition < 0:
                return row, ranges, None
            queue = self._queue_for(topic, partition, None)
            batch: ProducerBatch | None = queue.open
            if batch is None or batch.reserved < self._table_batch_size:
                try:
                    batch, first, taken = self._append_rows(
                        queue, chunk, None, row, row + 1, reservation
                    )
                except Exception:
                    if not ranges:
                        raise
                    return row, ranges, None  # It is raised next time: these rows are in.
                if taken:
                    ranges.append((batch, first, taken))
                    row += taken
                    continue
            self._close(queue, batch)
            self.sink.send_here()
            return row, ranges, batch

    # ---- memory ----

    def finish(self, *batches: ProducerBatch) -> None:
        """Batches are done: their memory is free, or kept for the next ones."""
        granted: list[Reservation] = []
        with self._lock:
            for batch in batches:
                writer = batch.writer
                self._incomplete.pop(batch, None)
                if (
                    writer is not None
                    and batch.reserved >= self._batch_size
                    and not is_pinned(writer)
                ):
                    writer.clear()
                    if self._pool.keep_spare(writer, batch.reserved):
                        batch.reserved = 0
                if batch.reserved:
                    granted += self._pool.release(batch.reserved)
                    batch.reserved = 0
            self._set_flushing()
        for batch in batches:
            batch.writer = None
        for each in granted:
            each.wake()

    def recycle(self, batch: ProducerBatch, writer: BatchWriter) -> None:
        """As the plain one; what a frame on its way out still needs is not used again."""
        super().recycle(batch, BatchWriter(0) if is_pinned(writer) else writer)
