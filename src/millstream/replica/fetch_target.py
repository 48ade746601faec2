"""What a fetch asks of one partition, and what it gets.

Handlers make `FetchTarget`s of a request; a fetch session keeps them from one request to the next.
`PartitionFetch` is the answer. Values, besides the marks that tell a session what has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.replica.partition import Partition
    from millstream.storage.epoch_cache import EpochEnd
    from millstream.storage.filesystem import FileSlice
    from millstream.storage.log_results import OffsetMetadata
    from millstream.storage.transaction_index import AbortedTransaction
    from millstream.types import Uuid

UNKNOWN: Final = -1
"""An offset, an epoch or a broker that is not known or not given."""


class FetchInterest:
    """Whoever is told of changes: a session, or a fetch without one while it waits."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed: dict[FetchTarget, None] = {}
        """The partitions that may have something to say."""


class FetchTarget:
    """One partition of a fetch. `topic` is a name up to version 12 of Fetch, an id from 13 on."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "interest",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "rank",
        "sent_high_watermark",
        "sent_log_start_offset",
        "start",
        "topic",
    )

    def __init__(
        self,
        topic: str | Uuid,
        index: int,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = UNKNOWN,
        last_fetched_epoch: int = UNKNOWN,
        log_start_offset: int = UNKNOWN,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        """Where the log of a follower begins."""
        self.partition: Partition | None = None
        """Found at the first read, and kept as long as this broker has it."""
        self.start: OffsetMetadata | None = None
        """Where the fetch offset is in the files, if it was found."""
        self.interest: FetchInterest | None = None
        self.rank = 0
        """The place in the order of a session; who got records goes to the end."""
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start_offset = UNKNOWN

    def update(self, asked: FetchTarget) -> None:
        """A later request of the session asks for something else of the partition."""
        self.fetch_offset = asked.fetch_offset
        self.partition_max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def watch(self, partition: Partition) -> None:
        """Be told of changes of the partition, on behalf of the interest."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
        if self.interest is not None:
            partition.watchers[self] = None

    def stop_watching(self) -> None:
        """Be told no more; the partition stays known."""
        self.interest = None
        if self.partition is not None:
            self.partition.watchers.pop(self, None)

    def unwatch(self) -> None:
        """Forget the partition, which may be gone."""
        if self.partition is not None:
            self.partition.watchers.pop(self, None)
            self.partition = None


class PartitionFetch(NamedTuple):
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
        """Whether the asker must know at once."""
        return (
            self.error is not None
            or self.diverging_epoch is not None
            or self.preferred_read_replica != UNKNOWN
        )
