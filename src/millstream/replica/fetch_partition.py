"""What a fetch asks of one partition, and what it gets.

Handlers make a `FetchPartition` of each partition in a request; a fetch session keeps them from one
request to the next. `FetchPartitionData` is what a read gives. Neither reads anything itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.replica.fetch_state import UNKNOWN, FetchPartitionState

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.replica.partition import Partition
    from millstream.storage.filesystem import FileSlice
    from millstream.storage.log.epoch_cache import EpochEnd
    from millstream.storage.log.transaction_index import AbortedTransaction


class FetchPartition(FetchPartitionState):
    """One partition of a fetch or of a fetch session."""

    __slots__ = ()

    def update(self, asked: FetchPartition) -> None:
        """A later request of the session asks for something else of the partition."""
        self.fetch_offset = asked.fetch_offset
        self.partition_max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def watch(self, partition: Partition) -> None:
        """Let the watcher be told of changes of the partition."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
        if self.watcher is not None:
            partition.watchers[self] = None

    def stop_watching(self) -> None:
        """Let the watcher be told no more; the partition stays known."""
        self.watcher = None
        if self.partition is not None:
            self.partition.watchers.pop(self, None)

    def unwatch(self) -> None:
        """Forget the partition, which may be gone."""
        if self.partition is not None:
            self.partition.watchers.pop(self, None)
            self.partition = None


class FetchPartitionData(NamedTuple):
    """What one partition answers to a fetch."""

    error: ApiError | None
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    records: FileSlice | None = None
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    diverging_epoch: EpochEnd | None = None
    preferred_read_replica: int = UNKNOWN
    is_withheld: bool = False
    """There are records, but the limits of the fetch had no room for them."""

    @property
    def size(self) -> int:
        """How many bytes of records."""
        return 0 if self.records is None else self.records.length

    @property
    def is_urgent(self) -> bool:
        """Whether the client must know at once."""
        return (
            self.error is not None
            or self.diverging_epoch is not None
            or self.preferred_read_replica != UNKNOWN
        )
