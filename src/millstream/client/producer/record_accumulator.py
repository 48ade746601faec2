"""`RecordAccumulator`: records from any thread, gathered into batches for the `Sender`.

Producers call `append` (and `append_rows`) from every thread; the I/O thread calls `collect`,
`take`, `finish`. One lock guards all of it, is held for one record at a time, and nobody's code
runs under it. It knows topics by the number of their partitions and knows nothing of brokers,
sequences or retries: a batch that was taken never comes back.

This is the plain twin. Everything on the way of a record is in `append`, so that the compiled twin
is one call per record; what happens once per batch is in the methods it calls.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.client.producer.batch_filling import BatchFilling
from millstream.client.producer.kernel import (
    AccumulatorLock,
    Delivery,
    PartitionQueue,
)
from millstream.client.producer.partition_queues import (
    ANY_PARTITION,
    size_bound,
    too_large,
)
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.errors import MillstreamError
    from millstream.records.arrow import ArrowChunk
    from millstream.records.kernel import BatchWriter
    from millstream.types import Headers, ReadableBuffer


class RecordAccumulator(BatchFilling):
    """Batches by topic and partition, within a bound of memory."""

    # ---- any thread ----

    def append(
        self,
        topic: str,
        partition: int,
        key: ReadableBuffer | str | None,
        value: ReadableBuffer | str | None,
        headers: Headers = (),
        timestamp: int | None = None,
        reservation: Reservation | None = None,
    ) -> Delivery:
        """Add one record. TopicNotKnown and MemoryNotFree say that it must wait for something.

        A str is encoded as UTF-8; without a timestamp the record gets the time of now.
        """
        if isinstance(key, str):
            key = key.encode()
        if isinstance(value, str):
            value = value.encode()
        size = size_bound(key, value, headers)
        if size > self._record_size_max:
            raise too_large(topic, size, self._record_size_max)
        if timestamp is None:
            timestamp = self._clock.wall_ms()
        with self._lock:
            sendable_count = len(self._sendable)
            queue = self._queue_with_room(topic, partition, key, size)
            batch = queue.open
            should_wake = batch is None or len(self._sendable) > sendable_count
            if batch is None:
                batch = self._begin_batch(queue, size, reservation)
            assert batch.writer is not None
            index = batch.writer.record_count
            try:
                # The writer's own checks come before it changes anything.
                batch_bytes = batch.writer.append(timestamp, key, value, headers)
            except BaseException:
                if not index:
                    self._discard(batch)
                raise
            batch.record_count = index + 1
            if not index:
                self._enqueue(queue, batch)
            if partition < 0:
                queue.topic.sticky_bytes += size
            if batch_bytes >= self._batch_size:
                self._close(queue, batch)
                should_wake = True
        if should_wake:
            self._wake()
        return Delivery(batch, index, timestamp)

    def append_rows(
        self,
        topic: str,
        partition: int,
        chunk: ArrowChunk,
        rows: memoryview | None,
        start: int,
        stop: int,
        reservation: Reservation | None = None,
    ) -> tuple[ProducerBatch, int, int]:
        """Add rows of Arrow data until a batch is full: the batch, the first's index, how many.

        `rows` says which rows of the chunk are meant, None all of them; start and stop are places
        in it. ANY_PARTITION is the sticky partition.
        """
        with self._lock:
            queue = self._queue_for(topic, partition, None)
            size_before = 0 if queue.open is None else queue.open.size
            batch, first, taken = self._append_rows(queue, chunk, rows, start, stop, reservation)
            if partition < 0:
                queue.topic.sticky_bytes += batch.size - size_before
            if start + taken < stop or batch.size >= self._table_batch_size:
                self._close_table_batch(queue, batch)
        self._wake()
        return batch, first, taken

    def _append_rows(
        self,
        queue: PartitionQueue,
        chunk: ArrowChunk,
        rows: memoryview | None,
        start: int,
        stop: int,
        reservation: Reservation | None,
    ) -> tuple[ProducerBatch, int, int]:
        """Add rows to the batch of a queue, which begins if there is none, as far as they fit."""
        now_ms = self._clock.wall_ms()
        batch = queue.open
        is_new = batch is None
        if batch is None:
            # An empty batch takes its first row whatever its size, so that is measured.
            size = size_bound(*chunk.row(start if rows is None else rows[start])[1:])
            if size > self._record_size_max:
                raise too_large(queue.topic.name, size, self._record_size_max)
            batch = self._begin_batch(queue, size, reservation, is_table=True)
        assert batch.writer is not None
        first = batch.writer.record_count
        try:
            taken = self._extend(batch, chunk, rows, start, stop, now_ms)
        finally:
            # Rows before one that is wrong are in, and go.
            if is_new and batch.record_count:
                self._enqueue(queue, batch)
            elif is_new:
                self._discard(batch)
        return batch, first, taken

    def append_by_key(
        self,
        topic: str,
        chunk: ArrowChunk,
        start: int,
        stop: int,
        reservation: Reservation | None = None,
    ) -> tuple[int, list[tuple[ProducerBatch, int, int]], ProducerBatch | None] | None:
        """Add rows of the plainest kind to the partitions of their keys, until a batch is full.

        Gives the row it stopped at, what came into which batch (the batch, the first's index, how
        many), and the batch that is full. None if it does not know how: then the rows are for
        `append_rows`, as all of them are for this twin.
        """
        return None

    def _extend(
        self,
        batch: ProducerBatch,
        chunk: ArrowChunk,
        rows: memoryview | None,
        start: int,
        stop: int,
        now_ms: int,
    ) -> int:
        """Fill a batch from rows, its memory growing with it; at least one if it is empty."""
        writer = batch.writer
        assert writer is not None
        begin = start
        try:
            while start < stop:
                limit = min(batch.reserved, self._table_batch_size)
                if rows is None:
                    start += writer.extend_arrow(chunk, start, stop, limit, now_ms)
                else:
                    start += writer.extend_arrow_rows(chunk, rows, start, stop, limit, now_ms)
                if start < stop and not self._grow(
                    batch, batch.reserved + 1, self._table_batch_size
                ):
                    break
        finally:
            batch.record_count = writer.record_count
        return start - begin

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, if it is known."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.count

    def available_partitions(self, topic: str) -> Sequence[int]:
        """The partitions of a topic that have a leader."""
        return self._topics[topic].available

    def reserve(self, size: int) -> Reservation:
        """Ask for memory, in turn with all who do."""
        with self._lock:
            if size > self._pool.total:
                raise InvalidArgument(
                    f"a batch of {size} bytes is larger than buffer_memory, {self._pool.total}"
                )
            reservation = self._pool.enqueue(size)
        self._wake()  # While somebody waits for memory, nothing lingers.
        return reservation

    def cancel(self, reservation: Reservation) -> None:
        """Give up a reservation, granted or not."""
        with self._lock:
            granted = self._pool.cancel(reservation)
        for each in granted:
            each.wake()

    def begin_flush(self, *, sends_here: bool = False) -> list[ProducerBatch]:
        """Let nothing linger until `end_flush`; the batches that are not done.

        `sends_here`: the caller has time to send what it can by itself.
        """
        with self._lock:
            self._flushes += 1
            incomplete = list(self._incomplete)
            if sends_here and incomplete:
                self._send_here()
        self._wake()
        return incomplete

    def _send_here(self) -> None:
        """With the lock: what is due is sent by who lets go of it, where that is possible."""

    def end_flush(self) -> None:
        """One flush less."""
        with self._lock:
            self._flushes -= 1

    def close(self, error: MillstreamError) -> None:
        """Take no more records: `error` is raised for them. What is here does not linger."""
        with self._lock:
            self._closed_error = self._closed_error or error
            for queue in self._open_queues():
                assert queue.open is not None
                self._close(queue, queue.open)
            waiting = self._pool.waiting()
        for each in waiting:
            each.wake()
        self._wake()

    def disown(self, error: MillstreamError) -> None:
        """In a forked child: whoever held the lock is not here. Only raising is left to do."""
        self._lock = AccumulatorLock()
        self._closed_error = error
        for queue in self._open_queues():
            queue.open = None

    @property
    def buffered_bytes(self) -> int:
        """Memory in use, of `buffer_memory`."""
        return self._pool.total - self._pool.available

    @property
    def incomplete_count(self) -> int:
        """How many batches are not done."""
        return len(self._incomplete)

    # ---- the I/O thread ----

    def set_topic(self, name: str, partition_count: int, available: Sequence[int]) -> None:
        """What metadata says of a topic: its partitions, and which of them have a leader."""
        with self._lock:
            topic = self._topics.get(name) or self._new_topic(name)
            for index in range(len(topic.partitions), partition_count):
                topic.partitions.append(PartitionQueue(topic, index, self._first_size))
            topic.count = partition_count
            topic.available = available
            if topic.sticky not in (available or range(partition_count)):
                topic.sticky = ANY_PARTITION
            self._topics[name] = topic

    def forget_topic(self, name: str) -> bool:
        """Drop a topic that has nothing waiting; False if it has."""
        with self._lock:
            topic = self._topics.get(name)
            if topic is None or any(queue.batches for queue in topic.partitions):
                return False
            del self._topics[name]
            return True

    def collect(self, now_ms: int) -> tuple[list[PartitionQueue], int | None]:
        """The queues that have become sendable, and when the next one will by lingering.

        A queue is told of once for each batch that is full or has lingered, not again and again.
        """
        with self._lock:
            found = [each for each in self._sendable if not each.is_express]
            self._sendable = []
            hurries = self._hurries()
            lingering = self._lingering
            if len(lingering) > 4 * len(self._incomplete) + 64:
                lingering = self._lingering = deque(
                    each for each in lingering if not each.is_closed
                )
            while lingering:
                batch = lingering[0]
                queue = None if batch.is_closed else self._incomplete.get(batch)
                if queue is not None and not queue.is_express:
                    due_ms = batch.created_ms + self._linger_ms
                    if now_ms < due_ms and not hurries:
                        return found, due_ms
                    found.append(queue)
                lingering.popleft()
            return found, None

    def take(self, queue: PartitionQueue, size_max: int, now_ms: int) -> ProducerBatch | None:
        """The oldest batch of a queue, if it is sendable and not larger; it accepts no more."""
        with self._lock:
            if not queue.batches:
                return None
            batch = queue.batches[0]
            if not self._is_sendable(batch, now_ms) or batch.size > size_max:
                return None
            if batch is queue.open:
                queue.open = None
                queue.expected_size = batch.size
            queue.take_first()
            batch.end_of_records()
            return batch

    def has_sendable(self, queue: PartitionQueue, now_ms: int) -> bool:
        """Whether `take` would give a batch, were it small enough."""
        with self._lock:
            return bool(queue.batches) and self._is_sendable(queue.batches[0], now_ms)

    def recycle(self, batch: ProducerBatch, writer: BatchWriter) -> None:
        """A batch was sealed: keep what its sealed bytes need, and its writer if it is large."""
        sealed = batch.size
        granted: list[Reservation] = []
        with self._lock:
            if batch.reserved >= self._batch_size and self._pool.try_reserve(sealed):
                writer.clear()
                if not self._pool.keep_spare(writer, batch.reserved):
                    granted = self._pool.release(batch.reserved)
                batch.reserved = sealed
            elif batch.reserved > sealed:
                granted = self._pool.release(batch.reserved - sealed)
                batch.reserved = sealed
        for each in granted:
            each.wake()

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """A batch was split: its parts are incomplete now, and the first to time out."""
        with self._lock:
            queue = self._incomplete.pop(batch)
            for part in parts:
                self._incomplete[part] = queue
                self._incomplete.move_to_end(part, last=False)

    def finish(self, *batches: ProducerBatch) -> None:
        """Batches are done: their memory is free."""
        granted: list[Reservation] = []
        with self._lock:
            for batch in batches:
                self._incomplete.pop(batch, None)
                granted += self._pool.release(batch.reserved)
                batch.reserved = 0
        for batch in batches:
            batch.writer = None
        for each in granted:
            each.wake()

    def oldest(self) -> ProducerBatch | None:
        """The incomplete batch that was made first."""
        with self._lock:
            return next(iter(self._incomplete), None)

    def remove(self, batch: ProducerBatch) -> bool:
        """Take a certain batch out of its queue, open or not; False if it was taken before."""
        with self._lock:
            queue = self._incomplete.get(batch)
            if queue is None or batch not in queue.batches:
                return False
            if queue.open is batch:
                queue.open = None
            queue.remove(batch)
            batch.end_of_records()
            return True

    def incomplete(self) -> list[ProducerBatch]:
        """All batches that are not done, the oldest first."""
        with self._lock:
            return list(self._incomplete)
