"""What every kind of group is to the rest of the coordinator: `Group`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError
    from millstream.types import Uuid

    CommitCheck: TypeAlias = Callable[[str, Uuid, int], None]
    """Raises ApiError if a member may not commit for a partition: topic, its id, partition."""


class GroupType(Enum):
    """The kinds of groups, as ListGroups spells them."""

    __hash__ = object.__hash__  # Each is only itself; the inherited one is slow.

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class CommitOrigin(NamedTuple):
    """Who commits offsets, as the request says."""

    member_id: str
    instance_id: str | None
    generation: int
    """Or the member's epoch; negative from who is in no group."""
    version: int
    """Of the API."""
    is_transactional: bool


class Group(Protocol):
    """A group of any kind, as offsets, listings and deletion see it."""

    @property
    def group_id(self) -> str:
        """Its name."""
        ...

    @property
    def type(self) -> GroupType:
        """Its kind."""
        ...

    @property
    def state_name(self) -> str:
        """Its state, as ListGroups spells it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """What its members speak among themselves; None if it never had any."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    @property
    def is_expirable(self) -> bool:
        """Whether it goes as soon as it is empty and has no offsets."""
        ...

    def validate_offset_commit(self, origin: CommitOrigin, now_ms: int) -> CommitCheck | None:
        """Raise ApiError unless a commit is in order; if that depends, the check per partition.

        A commit may also be a sign of life of a member.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError if offsets are not for this asker."""
        ...

    def validate_offset_delete(self) -> None:
        """Raise ApiError if no offset may be deleted."""
        ...

    def validate_delete(self) -> None:
        """Raise ApiError if the group may not be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic: its offsets are in use."""
        ...

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Since when an offset, committed at a time, is kept for nobody; None while it is used."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group, without its offsets."""
        ...

    def close(self, timers: TimerQueue, error: ApiError) -> None:
        """The group is gone from here: tell everybody who waits, and let go of deadlines."""
        ...
