"""One partition of an internal topic while this broker coordinates it: what runtime knows of it."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.coordinator.ports import CoordinatorShard

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.shared_batch import SharedBatch
    from millstream.errors import ApiError

S = TypeVar("S", bound=CoordinatorShard)


class ShardState(Enum):
    """Whether a partition's state can be used."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """Its log could not be read or replayed; requests are told to try again."""
    CLOSED = "closed"


class ShardContext(Generic[S]):
    """A partition, its state machine, and what waits for its records to be committed."""

    __slots__ = (
        "_waiting",
        "end_offset",
        "epoch",
        "inflight_count",
        "partition",
        "safe_offset",
        "shard",
        "shared",
        "state",
    )

    def __init__(self, partition: int, epoch: int, shard: S) -> None:
        self.partition = partition
        self.epoch = epoch
        """The leader epoch in which this broker coordinates; a higher one ends it."""
        self.shard = shard
        self.state = ShardState.LOADING
        self.end_offset = 0
        """The offset after the last record that is replayed into the shard."""
        self.safe_offset = -1
        """An offset before which everything was found to be committed."""
        self.inflight_count = 0
        """Writes that are in the log and not committed; each will say when they are."""
        self.shared: SharedBatch | None = None
        """What this turn's decisions write together, while it is not written."""
        self._waiting: deque[tuple[int, Callable[[ApiError | None], None]]] = deque()

    def wait(self, complete: Callable[[ApiError | None], None]) -> None:
        """Complete something when all that is replayed so far is committed."""
        self._waiting.append((self.end_offset, complete))

    def committed(self, end_offset: int, error: ApiError | None) -> None:
        """The records before an offset are committed, or will not be in time."""
        while self._waiting and self._waiting[0][0] <= end_offset:
            self._waiting.popleft()[1](error)

    def abandon(self, error: ApiError) -> None:
        """Nothing more will be known here, or written."""
        waiting, self._waiting = self._waiting, deque()
        for _, complete in waiting:
            complete(error)
        shared, self.shared = self.shared, None
        if shared is not None:
            shared.complete(error)
