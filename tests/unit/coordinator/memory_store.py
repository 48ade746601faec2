"""Logs in memory for coordinators: a `PartitionStore` that a test can slow down and break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.ports import Appended, LogBounds
from millstream.records import RecordBatch, split_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError


class MemoryStore:
    """Batches by partition. Appends are committed at once unless `holds_commits`."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.failure: ApiError | None = None
        """Raised by every append while it is set."""
        self.read_failure: ApiError | None = None
        self.holds_commits = False
        self.committed: dict[int, int] = {}
        self.size_max = 1 << 20
        self._ends: dict[int, int] = {}
        self._waiting: list[tuple[int, int, Callable[[ApiError | None], None]]] = []

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        done: Callable[[ApiError | None], None],
        *,
        timeout_ms: int,
        transaction_version: int = 2,
    ) -> Appended:
        """Keep a batch."""
        if self.failure is not None:
            raise self.failure
        start = self._ends.get(partition, 0)
        parsed = RecordBatch(batch)
        parsed.patch(start, leader_epoch)
        end = self._ends[partition] = parsed.next_offset
        self.batches.setdefault(partition, []).append(bytes(batch))
        if self.holds_commits:
            self._waiting.append((partition, end, done))
            return Appended(end, is_committed=False)
        self.committed[partition] = end
        return Appended(end, is_committed=True)

    def commit(self, error: ApiError | None = None) -> None:
        """Commit everything that was held back, or fail it."""
        waiting, self._waiting = self._waiting, []
        for partition, end, done in waiting:
            if error is None:
                self.committed[partition] = max(end, self.committed.get(partition, 0))
            done(error)

    def bounds(self, partition: int, leader_epoch: int) -> LogBounds:
        """All of a log."""
        if self.read_failure is not None:
            raise self.read_failure
        return LogBounds(0, self._ends.get(partition, 0))

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        """Batches from an offset on; at least one."""
        if self.read_failure is not None:
            raise self.read_failure
        found = b""
        for batch in self.batches.get(partition, []):
            if RecordBatch(batch).next_offset <= offset:
                continue
            if found and len(found) + len(batch) > bytes_max:
                break
            found += batch
        return found

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Whether everything before an offset is committed."""
        return self.committed.get(partition, 0) >= end_offset

    def batch_size_max(self, partition: int) -> int:
        """The largest batch."""
        return self.size_max

    def record_count(self, partition: int = 0) -> int:
        """How many records a log has."""
        return sum(
            batch.record_count
            for data in self.batches.get(partition, [])
            for batch in split_batches(data)
            if isinstance(batch, RecordBatch)
        )
