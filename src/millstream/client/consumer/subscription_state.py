"""What is known of each partition that a consumer reads: how far it was fetched, and what next.

`ConsumerCore` and the parts that find positions and fetch share one `SubscriptionState`, on the I/O
thread. How far the *application* has read is in `FetchBuffer`; this is about what to ask brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from millstream.client.consumer.starting_point import AtCommitted, AtOffset
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.types import TopicPartition


class Phase(Enum):
    """What a partition waits for."""

    AWAITING_COMMITTED = "the committed offset"
    AWAITING_OFFSET = "the offset of a time or an end"
    VALIDATING = "whether the log is still the one that was read"
    FETCHING = "records"
    FAILED = "the application, which has an error to look at"


@dataclass(slots=True)
class PartitionState:
    """One partition as the I/O thread sees it."""

    partition: TopicPartition
    run: int
    """Which run of reading this is; a seek begins another (see `FetchBuffer`)."""
    phase: Phase = Phase.AWAITING_COMMITTED
    target: StartingPoint = AtCommitted()  # noqa: RUF009  # Frozen: one for all.
    """Where to begin, until that is an offset."""
    offset: int = -1
    """The next offset to ask for."""
    until: int = INT64_MAX
    """Where to stop asking."""
    last_epoch: int = -1
    """The leader epoch of the record before it."""
    validated_epoch: int = -1
    """The leader epoch under which `offset` was found to be in the log."""
    is_paused: bool = False
    is_leaving: bool = False
    """Revoked or lost, and the application has not yet heard of it."""
    preferred_replica: int = -1
    preferred_until_ms: int = 0
    not_before_ms: int = 0
    failures: int = 0
    is_asked: bool = False
    """Whether somebody is asking for its offset just now."""

    def begin(self, target: StartingPoint, run: int) -> None:
        """Begin anew somewhere else."""
        self.run = run
        self.target = target
        self.is_asked = False
        self.not_before_ms = 0
        self.failures = 0
        self.preferred_replica = -1
        self.until = INT64_MAX
        if isinstance(target, AtOffset):
            self.until = target.until
            self.place(target.offset, target.leader_epoch)
        elif isinstance(target, AtCommitted):
            self.phase = Phase.AWAITING_COMMITTED
        else:
            self.phase = Phase.AWAITING_OFFSET

    def place(self, offset: int, leader_epoch: int) -> None:
        """The offset is known."""
        self.offset = offset
        self.last_epoch = leader_epoch
        self.validated_epoch = -1
        self.is_asked = False
        self.phase = Phase.FETCHING

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be asked for."""
        is_wanted = self.offset < self.until and not self.is_paused and not self.is_leaving
        return is_wanted and self.phase is Phase.FETCHING


class SubscriptionState:
    """The partitions that are read."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionState] = {}

    def add(self, partition: TopicPartition, *, is_paused: bool) -> PartitionState:
        """Read a partition as well; where is still to be said."""
        state = PartitionState(partition, 0, is_paused=is_paused)
        self._partitions[partition] = state
        return state

    def remove(self, partition: TopicPartition) -> None:
        """Read it no longer."""
        self._partitions.pop(partition, None)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """What is known of it, if it is read."""
        return self._partitions.get(partition)

    def current(self, partition: TopicPartition, run: int) -> PartitionState | None:
        """The same, unless another run has begun: an answer to the old one is of no use."""
        state = self._partitions.get(partition)
        return state if state is not None and state.run == run else None

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._partitions

    def topics(self) -> set[str]:
        """The topics of the partitions."""
        return {each.topic for each in self._partitions}
