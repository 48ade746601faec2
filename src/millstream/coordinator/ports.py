"""What coordinators need from the rest of the house, stated as protocols; `node` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError
    from millstream.protocol.message import Message


class Appended(NamedTuple):
    """Records that are in a log."""

    end_offset: int
    """The offset after them."""
    is_committed: bool
    """Whether they are safe already; else the `done` of the append is called when they are."""


class LogBounds(NamedTuple):
    """Where a log begins and ends."""

    start_offset: int
    end_offset: int


class PartitionStore(Protocol):
    """The partitions of one internal topic, as far as this broker leads them."""

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
        """Write a batch, which is numbered in place; raises ApiError if nothing was written.

        `done` is called exactly once, later, unless the result says that all is committed.
        """
        ...

    def bounds(self, partition: int, leader_epoch: int) -> LogBounds:
        """What there is to load; raises ApiError if this broker does not lead."""
        ...

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        """Whole batches from an offset on, at least one if there is one; raises ApiError."""
        ...

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Whether everything before an offset is safe."""
        ...

    def batch_size_max(self, partition: int) -> int:
        """The largest batch that the topic takes."""
        ...


class CoordinatorShard(Protocol):
    """The state machine of one partition."""

    @property
    def timers(self) -> TimerQueue:
        """What it wants to decide when."""
        ...

    def replay(self, key: Message, value: Message | None, stamp: ProducerStamp | None) -> None:
        """A record is in the log: make it true. With a stamp it belongs to a transaction."""
        ...

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        """A producer's transaction in this partition has ended."""
        ...

    def loaded(self, now_ms: int) -> None:
        """All that was in the log is replayed: begin to watch the time."""
        ...

    def unloaded(self, error: ApiError) -> None:
        """Another broker coordinates from now on: tell everybody who waits."""
        ...
