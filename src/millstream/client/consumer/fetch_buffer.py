"""What was fetched and not yet read: the one place where the I/O thread and the application meet.

The I/O thread puts batches, places, errors and changes of the assignment in; the application takes
records or rows out, on its own thread. One lock and one condition guard it; nothing slow and
nothing of the user's runs under the lock. It is bounded by the fetcher, which asks for no more
while the buffer is full.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any

from millstream.client.consumer.completed_fetches import CompletedFetches, Failed, Placed
from millstream.client.consumer.mailbox import Mailbox
from millstream.client.consumer.starting_point import AtOffset
from millstream.errors import CorruptBatch, CorruptMessage
from millstream.records.batch import split_batches
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.client.consumer.completed_fetches import Entry
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.records.kernel import ArrowRecordsBuilder, ConsumerRecord, FetchedBatches
    from millstream.types import TopicPartition


class FetchBuffer(Mailbox):
    """The completed fetches of each partition, and events for the caller that polls."""

    def __init__(
        self,
        byte_limit: int,
        on_room: Callable[[], None],
        on_corrupt: Callable[[CorruptBatch], object] | None = None,
    ) -> None:
        """`on_room` is called on the application's thread: a fetcher that held back may go on.

        So is `on_corrupt`, for a batch that cannot be read and is then skipped; without it the
        application gets the error.
        """
        self._on_corrupt = on_corrupt
        self._byte_limit = byte_limit
        super().__init__()
        self._on_room = on_room
        self._by_partition: dict[TopicPartition, CompletedFetches] = {}
        self._ready: deque[CompletedFetches] = deque()
        # Those that stand before a corrupt batch, of which the application was told.
        self._corrupt: dict[CompletedFetches, CorruptBatch] = {}
        self._touched: list[CompletedFetches] = []
        self._next_run = 1
        self._is_held = False
        self.byte_count = 0
        """Bytes that wait for the application; without those of partitions that it has paused,
        for they would keep the others from being read."""

    # ---- the application's side: which partitions, and where ----

    def assign(self, partitions: Iterable[TopicPartition], start: StartingPoint) -> None:
        """Read these partitions as well."""
        with self._lock:
            for partition in partitions:
                if partition not in self._by_partition:
                    self._by_partition[partition] = fetches = CompletedFetches(partition, 0, start)
                    self._begin(fetches, start)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read them no longer; what was fetched of them is dropped."""
        with self._lock:
            found = [self._by_partition.pop(each, None) for each in partitions]
            cleared = [self._clear(each) for each in found if each is not None]
        if any(cleared):
            self._on_room()

    def seek(self, partition: TopicPartition, start: StartingPoint) -> int | None:
        """Read on from somewhere else; the new run, None if the partition is not read."""
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is None:
                return None
            has_room = self._clear(fetches)
            self._begin(fetches, start)
            run = fetches.run
        if has_room:
            self._on_room()
        return run

    def _begin(self, fetches: CompletedFetches, start: StartingPoint) -> None:
        fetches.run = self._next_run
        self._next_run += 1
        fetches.start = start
        fetches.position, fetches.leader_epoch = None, -1
        if isinstance(start, AtOffset):
            fetches.position, fetches.leader_epoch = start.offset, start.leader_epoch
        fetches.settle()

    def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[TopicPartition, int, StartingPoint, bool]]:
        """Partition, run, start and whether it is paused, for the I/O thread to begin with."""
        with self._lock:
            found = (self._by_partition.get(each) for each in partitions)
            return [
                (each.partition, each.run, each.start, each.is_paused)
                for each in found
                if each is not None
            ]

    def is_assigned(self) -> bool:
        """Whether any partition is read."""
        return bool(self._by_partition)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        with self._lock:
            return frozenset(self._by_partition)

    def paused(self) -> frozenset[TopicPartition]:
        """Those that give nothing for now."""
        with self._lock:
            return frozenset(
                key for key, fetches in self._by_partition.items() if fetches.is_paused
            )

    def set_paused(self, partition: TopicPartition, is_paused: bool) -> bool:
        """Give nothing of a partition, or again; False if it is not read."""
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is None:
                return False
            has_room = False
            if fetches.is_paused != is_paused:
                fetches.is_paused = is_paused
                has_room = self._count_off(fetches.byte_count if is_paused else -fetches.byte_count)
            self._queue(fetches)
        if has_room:
            self._on_room()
        return True

    # ---- the application's side: positions ----

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset that the application gets; None while it is not known.

        Raises what keeps it from being known.
        """
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is None:
                return None
            head = fetches.head()
            if fetches.position is None and isinstance(head, Failed):
                fetches.entries.popleft()
                raise head.error
            return fetches.position

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Where the log ends for this reader, as the last fetch said."""
        with self._lock:
            fetches = self._by_partition.get(partition)
            return None if fetches is None else fetches.end_offset

    def settle(self) -> None:
        """The application comes back: what it had got is processed."""
        for fetches in self._touched:
            fetches.settle()
        self._touched.clear()

    def positions(self, *, processed: bool) -> dict[TopicPartition, tuple[int, int]]:
        """Next offset and leader epoch of each partition: as given out, or as processed."""
        with self._lock:
            found = {}
            for partition, fetches in self._by_partition.items():
                fetches.head()
                if processed and fetches.processed is not None:
                    found[partition] = fetches.processed
                elif not processed and fetches.position is not None:
                    found[partition] = (fetches.position, fetches.leader_epoch)
            return found

    # ---- the application's side: taking ----

    def take(self, count: int, *, of_one: bool = False) -> list[ConsumerRecord[Any, Any]]:
        """Records that are here, `count` at most, on request of one partition only.

        An error comes when nothing is before it.
        """
        taken: list[ConsumerRecord[Any, Any]] = []
        while len(taken) < count:
            fetches, batches = self._next(is_first=not taken)
            if fetches is None or batches is None:
                break
            try:
                records = batches.take(count - len(taken))
            except CorruptMessage as error:
                if taken:
                    self._put_back(fetches)
                    break
                self._pass_over(fetches, batches, error)
                records = []
            except Exception:
                self._put_back(fetches)
                if taken:
                    break
                raise
            taken = records if not taken else taken + records
            self._after(fetches, batches)
            if of_one and taken:
                break
        return taken

    def take_arrow(
        self,
        builder: ArrowRecordsBuilder,
        byte_limit: int,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> TopicPartition | None:
        """Rows that are here, of one topic; one of its partitions, None if there are none.

        `ends` are offsets before which to stop.
        """
        found: TopicPartition | None = None
        while builder.byte_count < byte_limit:
            fetches, batches = self._next(is_first=found is None)
            if fetches is None or batches is None:
                break
            if found is not None and fetches.partition.topic != found.topic:
                self._put_back(fetches)
                break
            try:
                end = INT64_MAX if ends is None else ends[fetches.partition]
                rows = batches.take_arrow(builder, byte_limit, end)
            except CorruptMessage as error:
                if found is not None:
                    self._put_back(fetches)
                    break
                self._pass_over(fetches, batches, error)
                rows = 0
            except Exception:
                self._put_back(fetches)
                if found is not None:
                    break
                raise
            if rows:
                found = fetches.partition
            self._after(fetches, batches, is_finished=batches.position >= end)
        return found

    def _next(self, *, is_first: bool) -> tuple[CompletedFetches | None, FetchedBatches | None]:
        """The fetches whose turn it is, taken out of the queue, and its batches."""
        with self._lock:
            while self._ready:
                fetches = self._ready.popleft()
                fetches.is_queued = False
                if fetches.is_paused or self._by_partition.get(fetches.partition) is not fetches:
                    continue
                entry = fetches.head()
                if isinstance(entry, Failed):
                    if is_first:
                        fetches.entries.popleft()
                        self._queue(fetches)
                        raise entry.error
                    self._queue(fetches, is_first=True)
                    break
                if entry is not None:
                    return fetches, entry
            return None, None

    def _pass_over(
        self, fetches: CompletedFetches, batches: FetchedBatches, error: CorruptMessage
    ) -> None:
        """Skip a batch that cannot be read, or let the partition stand before it and raise."""
        corrupt = _explained(batches, error)
        if self._on_corrupt is None:
            with self._lock:
                self._corrupt[fetches] = corrupt
            # A raised error refers to the caller's frames: none is kept.
            raise copy(corrupt) from error
        try:
            self._on_corrupt(corrupt)
        except BaseException:
            self._put_back(fetches)
            raise
        batches.skip_batch()

    def known_corrupt(self) -> CorruptBatch | None:
        """A batch that cannot be read, of which the application was told, and has not moved on."""
        with self._lock:
            for fetches, corrupt in self._corrupt.items():
                if not fetches.is_paused:
                    return corrupt
        return None

    def _put_back(self, fetches: CompletedFetches) -> None:
        with self._lock:
            self._queue(fetches, is_first=True)

    def _after(
        self, fetches: CompletedFetches, batches: FetchedBatches, *, is_finished: bool = False
    ) -> None:
        """Something was taken: note the position; go on with another fetches when these are empty.

        A fetches that has come to its end keeps nothing of what lies behind that.
        """
        has_room = False
        with self._lock:
            fetches.advance(batches.position, batches.leader_epoch)
            self._touched.append(fetches)
            if is_finished:
                has_room = self._clear(fetches)
            elif batches.is_empty and fetches.entries and fetches.entries[0] is batches:
                fetches.entries.popleft()
                fetches.byte_count -= batches.size
                has_room = self._count_off(batches.size)
                self._queue(fetches)
            else:
                self._queue(fetches, is_first=True)
        if has_room:
            self._on_room()

    def _queue(self, fetches: CompletedFetches, *, is_first: bool = False) -> None:
        if (
            fetches.entries
            and not fetches.is_queued
            and not fetches.is_paused
            and fetches not in self._corrupt
        ):
            fetches.is_queued = True
            if is_first:
                self._ready.appendleft(fetches)
            else:
                self._ready.append(fetches)

    def _count_off(self, size: int) -> bool:
        """Whether a fetcher that holds back should be told: half empty, it has time enough."""
        self.byte_count -= size
        if not self._is_held or self.byte_count > self._byte_limit // 2:
            return False
        self._is_held = False
        return True

    def _clear(self, fetches: CompletedFetches) -> bool:
        self._corrupt.pop(fetches, None)
        size = fetches.clear()
        return self._count_off(0 if fetches.is_paused else size)

    def has_something(self) -> bool:
        """Whether a poll would not wait. To be asked under the lock, by `wait`."""
        return bool(self._ready or self.has_news())

    def is_placed(self, partition: TopicPartition) -> bool:
        """Whether a position is known, or never will be. To be asked under the lock."""
        fetches = self._by_partition.get(partition)
        return fetches is None or fetches.head() is not None or fetches.position is not None

    # ---- the I/O thread's side ----

    def put(
        self, partition: TopicPartition, run: int, entry: Entry, *, announces: bool = True
    ) -> bool:
        """Add what was fetched, found or failed; False if the application has moved on.

        Who puts in several tells whoever waits with `announce`, when all are there.
        """
        size = 0 if isinstance(entry, Placed | Failed) else entry.size
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is None or fetches.run != run:
                return False
            fetches.entries.append(entry)
            fetches.byte_count += size
            self.byte_count += 0 if fetches.is_paused else size
            self._queue(fetches)
        if announces:
            self._notify()
        return True

    def announce(self) -> None:
        """Something was put in: a caller that waits for it may go on."""
        self._notify()

    def learn_end(self, partition: TopicPartition, run: int, end_offset: int) -> None:
        """The log ends here, as a broker says."""
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is not None and fetches.run == run:
                fetches.end_offset = end_offset

    def rewind(self, partition: TopicPartition, run: int) -> tuple[int, int] | None:
        """Drop what was fetched of a log that has changed; where the application is.

        None if the application has moved on, or is nowhere yet.
        """
        with self._lock:
            fetches = self._by_partition.get(partition)
            if fetches is None or fetches.run != run or fetches.position is None:
                return None
            self._clear(fetches)
            return fetches.position, fetches.leader_epoch

    def is_full(self) -> bool:
        """Whether to fetch no more for now; `on_room` is called when it is time to go on."""
        with self._lock:
            self._is_held = self.byte_count >= self._byte_limit
            return self._is_held


def _explained(batches: FetchedBatches, error: CorruptMessage) -> CorruptBatch:
    data = batches.next_batch()
    next_offset = max((batch.next_offset for batch in split_batches(data)), default=-1)
    return CorruptBatch(
        f"{batches.topic}-{batches.partition}: the batch at offset {batches.position} cannot be "
        f"read ({error}); seek to {next_offset} to go on behind it, or set on_corrupt_batch",
        topic=batches.topic,
        partition=batches.partition,
        offset=batches.position,
        next_offset=next_offset,
        data=data,
    )
