"""What the accumulator does to its queues once per batch, with its lock held.

`RecordAccumulator` derives from it and is its only user: here a partition is chosen, a batch begins
and grows within the memory there is, and closes. Nothing here takes the lock, waits or wakes the
Sender.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from millstream.client.producer.buffer_pool import BufferPool
from millstream.client.producer.kernel import AccumulatorLock, PartitionQueue, TopicQueues
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.partitioner import draw_partition
from millstream.client.producer.producer_batch import ProducerBatch
from millstream.records.kernel import BatchWriter, partition_for_key
from millstream.records.layout import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.completions import Completions
    from millstream.clock import Clock
    from millstream.errors import MillstreamError
    from millstream.types import ReadableBuffer

_TABLE_FACTOR: Final = 4
"""How much larger batches of tables become: their rows cost so little that batches count."""
_REQUEST_OVERHEAD: Final = 1024
"""What a request has besides its batch, at most."""
_FIRST_SIZE_MAX: Final = 16 * 1024
"""With how much memory a batch begins; it doubles as it fills. Many idle partitions stay cheap."""


class BatchFilling:
    """The queues by topic and partition, the memory, and the rules of batches.

    `clock` tells when records and batches were made; `random` draws sticky partitions; `wake` is
    called, without the lock, when a batch is new or full: the Sender has something to do.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        record_size_max: int,
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
        self._linger_ms = linger_ms
        self._record_size_max = record_size_max
        self._clock = clock
        self._random = random
        self._completions = completions
        self._wake = wake
        self._ignores_keys = ignores_keys
        self._is_adaptive = is_adaptive
        self._lock = AccumulatorLock()
        self._pool = BufferPool(buffer_memory)
        self._topics: dict[str, TopicQueues] = {}
        self._lingering: deque[ProducerBatch] = deque()
        self._sendable: list[PartitionQueue] = []
        self._incomplete: OrderedDict[ProducerBatch, PartitionQueue] = OrderedDict()
        self._flushes = 0
        self._closed_error: MillstreamError | None = None
        self._first_size = self._batch_size
        while self._first_size > _FIRST_SIZE_MAX:
            self._first_size = (self._first_size + 1) // 2

    def _new_topic(self, name: str) -> TopicQueues:
        return TopicQueues(name)

    def _hurries(self) -> bool:
        """Whether nothing may linger."""
        return bool(self._flushes or self._closed_error is not None or self._pool.has_waiters)

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
            sizes = [len(topic.partitions[index].batches) for index in candidates]
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
        self._lingering.append(batch)

    def _discard(self, batch: ProducerBatch) -> None:
        """Nothing came into a new batch: its memory goes to who waits next."""
        for each in self._pool.release(batch.reserved):
            each.wake()

    def _close(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.end_of_records()
        queue.open = None
        queue.expected_size = batch.size
        if queue.index == queue.topic.sticky:
            # What the next record did not fit into counts as used: it is time to change.
            queue.topic.sticky_bytes += max(0, self._batch_size - batch.size)
        self._sendable.append(queue)

    def _close_table_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._close(queue, batch)

    def _is_sendable(self, batch: ProducerBatch, now_ms: int) -> bool:
        return (
            batch.is_closed
            or now_ms >= batch.created_ms + self._linger_ms
            or bool(self._flushes)
            or self._closed_error is not None
            or self._pool.has_waiters
        )
