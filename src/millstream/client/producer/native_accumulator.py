"""The compiled way of a record joined with the plain accumulator, which does the rest.

`make_accumulator` chooses: the compiled way reads the machine's own clock, so whoever brings
another one, as simulations do, gets the plain accumulator.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.client.producer import kernel
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import SystemClock
from millstream.records.kernel import BatchWriter

if TYPE_CHECKING or kernel.COMPILED:
    from millstream._accel.client.partition_queues import is_lent
    from millstream._accel.client.record_accumulator import RecordAppender
else:

    class RecordAppender:
        """Stands for the compiled one where there is none; nobody makes a NativeAccumulator."""


if TYPE_CHECKING:
    from millstream._accel.client.client_selector import SelectorCore
    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.clock import Clock
    from millstream.records.arrow import ArrowChunk


_SCOUTED_ROWS: Final = 1024
"""How many rows of a table for each partition make it worth while to open the lanes early."""


def make_accumulator(*, clock: Clock, **settings: Any) -> RecordAccumulator:
    """A `RecordAccumulator`, compiled if it can be; takes what that one takes."""
    if not kernel.COMPILED or type(clock) is not SystemClock:
        return RecordAccumulator(clock=clock, **settings)
    return NativeAccumulator(clock=clock, **settings)


class NativeAccumulator(RecordAppender, RecordAccumulator):
    """`append` is `RecordAppender`'s, the rest is the plain one's. It can have express lanes."""

    _lock: Any

    def __init__(self, **settings: Any) -> None:
        RecordAccumulator.__init__(self, **settings)
        self._wake_sender = self._wake
        self._has_lanes = False
        self.bind(
            self._topics,
            self._lock,
            RecordAccumulator.append,
            batch_size=self._batch_size,
            record_size_max=self._record_size_max,
            ignores_keys=self._ignores_keys,
        )

    def _new_topic(self, name: str) -> Any:
        return kernel.TopicQueues(name, self._lock)  # type: ignore[call-arg]  # The compiled one's.

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
        with self._lock:
            self._queue_for(topic, 0, None)  # Or raise why there is none.
            appended = self._scatter(topic, chunk, start, stop, reservation)
        self._wake()
        return appended

    def _scatter(
        self, topic: str, chunk: ArrowChunk, row: int, stop: int, reservation: Reservation | None
    ) -> tuple[int, list[tuple[ProducerBatch, int, int]], ProducerBatch | None] | None:
        now_ms = self._clock.wall_ms()
        ranges: list[tuple[ProducerBatch, int, int]] = []
        scouts = 0
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
                    if self._is_scout(queue, stop - row):
                        self._close(queue, batch)
                        scouts += 1
                        if scouts == queue.topic.count:
                            return row, ranges, None  # So that the Sender gets at them.
                    continue
            self._close_table_batch(queue, batch)
            return row, ranges, batch

    def _is_scout(self, queue: PartitionQueue, rows_left: int) -> bool:
        """Whether a partition's first row goes ahead of the others: many follow.

        The first batch of a partition goes alone, by the Sender, and is copied. By the time that
        the second is full, the lane is open.
        """
        return (
            self._has_lanes
            and queue.lane is None
            and len(queue.batches) == 1
            and rows_left >= _SCOUTED_ROWS * queue.topic.count
        )

    def _close_table_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        super()._close_table_batch(queue, batch)
        self._lock.send_here(queue, None if batch.told else batch)

    def _send_here(self) -> None:
        self._lock.send_here()

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
                    and not is_lent(writer)
                ):
                    writer.clear()
                    if self._pool.keep_spare(writer, batch.reserved):
                        batch.reserved = 0
                if batch.reserved:
                    granted += self._pool.release(batch.reserved)
                    batch.reserved = 0
        for batch in batches:
            batch.writer = None
        for each in granted:
            each.wake()

    def recycle(self, batch: ProducerBatch, writer: BatchWriter) -> None:
        """As the plain one; what a frame on its way out still needs is not used again."""
        super().recycle(batch, BatchWriter(0) if is_lent(writer) else writer)

    # ---- lanes ----

    def attach(self, selector: SelectorCore, *, request_size_max: int, max_in_flight: int) -> bool:
        """Let a selector's thread take batches from lanes that are opened; False if it cannot."""
        is_attached: bool = self._lock.attach(
            selector,
            self._haste,
            linger_ms=self._linger_ms,
            request_size_max=request_size_max,
            max_in_flight=max_in_flight,
        )
        if is_attached:
            self._has_lanes = True
            self._wake = self._wake_if_needed
            self._completions.hasten = partial(_hasten, weakref.ref(self))
        return is_attached

    def _haste(self) -> int:
        """See `AccumulatorLock.attach`. Who flushes says which batches it waits for."""
        if self._closed_error is not None or self._pool.has_waiters:
            return 2
        return 1 if self._flushes else 0

    def hasten(self, batch: ProducerBatch) -> None:
        """Somebody waits for a batch. A part of one that was split is the Sender's."""
        queue = self._incomplete.get(batch)
        if queue is not None:
            self._lock.hasten(queue, batch)

    def open_lane(self, queue: Any, *place: Any, **producer: int) -> bool:
        """See `AccumulatorLock.open_lane`."""
        with self._lock:
            is_open: bool = self._lock.open_lane(queue, *place, **producer)
        return is_open

    def close_lane(self, queue: Any) -> None:
        """Have the Sender take a partition's batches again; they linger as they would have."""
        with self._lock:
            self._lock.close_lane(queue)
            self._sendable.append(queue)
            waiting = sorted((*self._lingering, *queue.batches), key=lambda each: each.created_ms)
            self._lingering.clear()
            self._lingering.extend(waiting)
        self._wake()

    def note_dispatched(self) -> None:
        """Have `take_dispatched` know of all that was taken before."""
        with self._lock:
            pass  # Whoever gets it hears of that first.

    def take_dispatched(self) -> list[tuple[int, int, list[tuple[Any, Any, int]]]]:
        """What was taken for requests: their correlation ids and versions, in their order.

        Without the lock, which a table holds for long. So only what its holders know of.
        """
        dispatched = self._lock.dispatched
        return [dispatched.popleft() for _ in range(len(dispatched))]

    def _wake_if_needed(self) -> None:
        """The Sender need not know of what is not for it to send."""
        if self._lock.take_alarm():
            self._wake_sender()


def _hasten(reference: weakref.ref[NativeAccumulator], batch: ProducerBatch) -> None:
    # Batches know it, and its own references to them are not all seen by the garbage collector.
    accumulator = reference()
    if accumulator is not None:
        accumulator.hasten(batch)
