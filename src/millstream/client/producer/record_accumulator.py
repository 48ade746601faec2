"""`RecordAccumulator`: records from any thread, gathered into batches for the `Sender`.

Producers call `append` (and `append_rows`) from every thread; the I/O thread grants partitions what
they may send, and takes batches if no other thread sends them. One lock guards all of it, is held
for one record at a time, and nobody's code runs under it. It knows topics by the number of their
partitions and knows nothing of brokers, sequences or answers.

Everything on the way of a record is in `append`, so that the compiled version is one call per
record (`compiled_accumulator`); what happens once per batch is in the methods it calls.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from millstream.client.producer.buffer_pool import BufferPool
from millstream.client.producer.kernel import (
    Delivery,
    PartitionQueue,
    ProduceSink,
    TopicQueues,
)
from millstream.client.producer.partition_queues import (
    ANY_PARTITION,
    MemoryNotFree,
    TopicNotKnown,
    size_bound,
    too_large,
)
from millstream.client.producer.partitioner import draw_partition
from millstream.client.producer.producer_batch import ProducerBatch
from millstream.errors import InvalidArgument
from millstream.records.kernel import BatchWriter, partition_for_key
from millstream.records.layout import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.completions import Completions
    from millstream.client.producer.partition_state import PartitionState
    from millstream.client.producer.produce_sink import ProducerIdentity, Route
    from millstream.clock import Clock
    from millstream.errors import MillstreamError
    from millstream.records.arrow import ArrowChunk
    from millstream.types import Headers, ReadableBuffer

REQUEST_SIZE_MAX: Final = 1 << 20
"""How large requests become, unless it is said."""
_TABLE_FACTOR: Final = 4
"""How much larger batches of tables become: their rows cost so little that batches count."""
_REQUEST_OVERHEAD: Final = 1024
"""What a request has besides its batch, at most."""
_FIRST_SIZE_MAX: Final = 16 * 1024
"""With how much memory a batch begins; it doubles as it fills. Many idle partitions stay cheap."""


class RecordAccumulator:
    """Batches by topic and partition, within a bound of memory.

    `clock` tells when records and batches were made; `random` draws sticky partitions; `wake` is
    called, without the lock, when the Sender has something to do.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        record_size_max: int,
        request_size_max: int = REQUEST_SIZE_MAX,
        clock: Clock,
        random: Random,
        completions: Completions,
        wake: Callable[[], object],
        ignores_keys: bool = False,
        is_adaptive: bool = True,
    ) -> None:
        # A batch that no request can carry would never be sent.
        self._batch_size = max(min(batch_size, record_size_max), HEADER_SIZE + 1)
        self._table_batch_size = max(
            self._batch_size,
            min(_TABLE_FACTOR * self._batch_size, record_size_max - _REQUEST_OVERHEAD),
        )
        self._record_size_max = record_size_max
        self._clock = clock
        self._random = random
        self._completions = completions
        self._ignores_keys = ignores_keys
        self._is_adaptive = is_adaptive
        self.sink = ProduceSink(wake, linger_ms=linger_ms, request_size_max=request_size_max)
        """Knows which batches may leave, and sends them or has the Sender take them."""
        self._lock = self.sink.lock
        self._pool = BufferPool(buffer_memory)
        self._topics: dict[str, TopicQueues] = {}
        self._incomplete: OrderedDict[ProducerBatch, PartitionQueue] = OrderedDict()
        self._flushes = 0
        self._has_change = False
        """Whether a batch has begun or closed that nobody was notified of."""
        self._closed_error: MillstreamError | None = None
        self._first_size = self._batch_size
        while self._first_size > _FIRST_SIZE_MAX:
            self._first_size = (self._first_size + 1) // 2

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
            queue = self._queue_with_room(topic, partition, key, size)
            batch = queue.open
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
            has_change, self._has_change = self._has_change, False
        if has_change:
            self.sink.notify()
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
        try:
            with self._lock:
                queue = self._queue_for(topic, partition, None)
                size_before = 0 if queue.open is None else queue.open.size
                batch, first, taken = self._append_rows(
                    queue, chunk, rows, start, stop, reservation
                )
                if partition < 0:
                    queue.topic.sticky_bytes += batch.size - size_before
                if start + taken < stop or batch.size >= self._table_batch_size:
                    self._close(queue, batch)
                    self.sink.send_here()
        finally:  # Rows before one that is wrong are in.
            self.sink.notify()
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
        `append_rows`, as all of them are for this version.
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
            self._set_flushing()
        self.sink.notify()  # While somebody waits for memory, nothing lingers.
        return reservation

    def cancel(self, reservation: Reservation) -> None:
        """Give up a reservation, granted or not."""
        with self._lock:
            granted = self._pool.cancel(reservation)
            self._set_flushing()
        for each in granted:
            each.wake()

    def begin_flush(self, *, sends_here: bool = False) -> list[ProducerBatch]:
        """Let nothing linger until `end_flush`; the batches that are not done.

        `sends_here`: the caller has time to send what it can by itself.
        """
        with self._lock:
            self._flushes += 1
            self._set_flushing()
            incomplete = list(self._incomplete)
            if sends_here and incomplete:
                self.sink.send_here()
        self.sink.notify()
        return incomplete

    def end_flush(self) -> None:
        """One flush less."""
        with self._lock:
            self._flushes -= 1
            self._set_flushing()

    def close(self, error: MillstreamError) -> None:
        """Take no more records: `error` is raised for them. What is here does not linger."""
        with self._lock:
            self._closed_error = self._closed_error or error
            self._set_flushing()
            for queue in self._open_queues():
                assert queue.open is not None
                self._close(queue, queue.open)
            waiting = self._pool.waiting()
        for each in waiting:
            each.wake()
        self.sink.notify()

    def disown(self, error: MillstreamError) -> None:
        """In a forked child: whoever held the lock is not here. Only raising is left to do."""
        self.sink.disown()
        self._lock = self.sink.lock
        self._closed_error = error
        for queue in self._open_queues():
            queue.close()

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
            topic = self._topics.get(name) or TopicQueues(name, self.sink)
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
            if topic is None or any(len(queue) for queue in topic.partitions):
                return False
            del self._topics[name]
            return True

    def grant(
        self, queue: PartitionQueue, route: Route, allowance: int, identity: ProducerIdentity
    ) -> bool:
        """Let a partition send; False if its connection is not open any more."""
        with self._lock:
            is_granted = self.sink.grant(queue, route, allowance, identity)
        if self.sink.is_attached:
            self.sink.notify()
        return is_granted

    def revoke(self, queue: PartitionQueue) -> None:
        """Let a partition send nothing more."""
        with self._lock:
            self.sink.revoke(queue)

    def take(
        self, connection_id: int, now_ms: int
    ) -> tuple[list[tuple[PartitionQueue, ProducerBatch]], int | None]:
        """Batches for one request on a connection, and when the next one of a partition is due."""
        with self._lock:
            return self.sink.take(connection_id, now_ms)

    def put_back(self, state: PartitionState, batch: ProducerBatch) -> None:
        """Have a batch sent again, in its old place among those that are."""
        with self._lock:
            state.queue.put_back(batch, state.place_of(batch))

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
            self._set_flushing()
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
            self._set_flushing()
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
            if queue is None:
                return False
            if queue.open is batch:
                queue.close()
            if not queue.remove(batch):
                return False
            batch.end_of_records()
            return True

    def incomplete(self) -> list[ProducerBatch]:
        """All batches that are not done, the oldest first."""
        with self._lock:
            return list(self._incomplete)

    # ---- with the lock held ----

    def _set_flushing(self) -> None:
        """Nothing lingers while somebody flushes, closes, or waits for memory."""
        self.sink.set_flushing(
            bool(self._flushes) or self._closed_error is not None or self._pool.has_waiters
        )

    def _open_queues(self) -> list[PartitionQueue]:
        return [
            queue
            for topic in self._topics.values()
            for queue in topic.partitions
            if queue.open is not None
        ]

    def _queue_for(self, name: str, partition: int, key: ReadableBuffer | None) -> PartitionQueue:
        if self._closed_error is not None:
            raise self._closed_error.with_traceback(None)
        topic = self._topics.get(name)
        if topic is None or partition >= topic.count:
            raise TopicNotKnown(name)
        if partition >= 0:
            return topic.partitions[partition]
        if key is not None and not self._ignores_keys:
            return topic.partitions[partition_for_key(key, topic.count)]
        if topic.sticky < 0:
            self._change_sticky(topic)
        queue = topic.partitions[topic.sticky]
        # A change in the middle of a batch would leave it unfilled; only a long stay forces one.
        stayed = topic.sticky_bytes
        if stayed >= self._batch_size and (queue.open is None or stayed >= 2 * self._batch_size):
            self._change_sticky(topic)
            queue = topic.partitions[topic.sticky]
        return queue

    def _queue_with_room(
        self, name: str, partition: int, key: ReadableBuffer | None, size: int
    ) -> PartitionQueue:
        """The queue for a record, whose open batch has room for it, or which has none."""
        queue = self._queue_for(name, partition, key)
        while queue.open is not None and not self._has_room(queue, queue.open, size):
            # Its batch is closed now, which is when the sticky partition changes.
            queue = self._queue_for(name, partition, key)
        return queue

    def _change_sticky(self, topic: TopicQueues) -> None:
        candidates = topic.available or range(topic.count)
        sizes: list[int] | None = None
        if self._is_adaptive:
            sizes = [len(topic.partitions[index]) for index in candidates]
        topic.sticky = draw_partition(candidates, sizes, self._random)
        topic.sticky_bytes = 0

    def _has_room(self, queue: PartitionQueue, batch: ProducerBatch, size: int) -> bool:
        """Whether the record fits; its memory grows to let it. If not, the batch is closed."""
        assert batch.writer is not None
        needed = batch.writer.size + size
        if needed <= batch.reserved and needed <= self._batch_size:
            return True
        if self._grow(batch, needed, self._batch_size):
            return True
        self._close(queue, batch)
        return False

    def _grow(self, batch: ProducerBatch, needed: int, size_max: int) -> bool:
        """Reserve as the writer allocates: twice as much as before, or what is needed."""
        if needed > size_max:
            return False
        # Halving rounded up on the way here, so doubling may pass the size by a few bytes.
        reserved = max(2 * batch.reserved, needed)
        if not self._pool.try_reserve(reserved - batch.reserved):
            return False
        batch.reserved = reserved
        return True

    def _begin_batch(
        self,
        queue: PartitionQueue,
        size: int,
        reservation: Reservation | None,
        *,
        is_table: bool = False,
    ) -> ProducerBatch:
        """A new batch with room for `size` bytes, not in its queue yet."""
        needed = HEADER_SIZE + size
        writer: BatchWriter | None = None
        is_reserved = reservation is not None and not reservation.is_cancelled
        if reservation is not None and is_reserved and reservation.size >= needed:
            reserved = reservation.size
            # It is the batch's now; what was granted and is "cancelled" is given back by nobody.
            reservation.is_cancelled = True
        else:
            is_large = is_table or self._batch_size <= 2 * queue.expected_size
            writer, reserved = self._memory_for(needed, is_large=is_large)
        if writer is None:
            writer = BatchWriter(reserved - HEADER_SIZE)
        return ProducerBatch(
            queue.topic.name,
            queue.index,
            writer,
            reserved,
            self._clock.monotonic_ms(),
            self._completions,
        )

    def _memory_for(self, needed: int, *, is_large: bool) -> tuple[BatchWriter | None, int]:
        if is_large and needed <= self._batch_size:
            spare = self._pool.take_spare()
            if spare is not None:
                return spare
        reserved = max(self._first_size, needed)
        if not self._pool.try_reserve(reserved):
            raise MemoryNotFree(reserved)
        return None, reserved

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.add(batch)
        self._incomplete[batch] = queue
        self._has_change = True

    def _discard(self, batch: ProducerBatch) -> None:
        """Nothing came into a new batch: its memory goes to who waits next."""
        for each in self._pool.release(batch.reserved):
            each.wake()

    def _close(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.end_of_records()
        queue.close()
        queue.expected_size = batch.size
        if queue.index == queue.topic.sticky:
            # A batch that closes because the next record does not fit counts its whole capacity as
            # used: it is time to change.
            queue.topic.sticky_bytes += max(0, self._batch_size - batch.size)
        self._has_change = True
