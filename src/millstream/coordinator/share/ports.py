"""What share groups need from the rest of the house, stated as protocols; `node` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.state import (
        ShareKey,
        ShareState,
        StateChange,
        StateSummary,
    )
    from millstream.errors import ApiError
    from millstream.types import Uuid


class ShareStateStore(Protocol):
    """Keeps the state of share partitions: their coordinator, wherever it is.

    Every `done` is called exactly once, perhaps before the call returns. A coordinator on another
    broker is reached by the five requests that have the same names.
    """

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Begin a share partition, or begin it anew."""
        ...

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | ApiError], None]
    ) -> None:
        """What is known of a share partition, for the broker that leads it now."""
        ...

    def write(
        self, key: ShareKey, change: StateChange, done: Callable[[ApiError | None], None]
    ) -> None:
        """Keep what the leader says."""
        ...

    def delete(self, key: ShareKey, done: Callable[[ApiError | None], None]) -> None:
        """Forget a share partition."""
        ...

    def summarize(
        self, key: ShareKey, leader_epoch: int, done: Callable[[StateSummary | ApiError], None]
    ) -> None:
        """How far a share partition has come; an unknown one has not begun."""
        ...


class StateLog(Protocol):
    """The partitions of `__share_group_state`, as far as they are shortened."""

    def end_offset(self, partition: int) -> int:
        """The offset of the next record; raises ApiError."""
        ...

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete records that nobody needs any more; another time if that cannot be now."""
        ...


class ShareTopics(Protocol):
    """What the coordinator of states must know about topics: the metadata cache does."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic; None if there is no such topic."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        ...
