"""`ShareGroup`: what the records say about one share group, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.group.group import GroupType
from millstream.coordinator.group.share.records import (
    ShareSubscription,
    StatePartitions,
    group_tombstones,
    member_tombstones,
)
from millstream.errors import GroupIdNotFound, NonEmptyGroup, UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.group import CommitCheck, CommitOrigin
    from millstream.coordinator.group.share.assignor import Assignment
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError

PROTOCOL_TYPE: Final = "share"
SESSION: Final = "share session"
"""Marks the timer of a member, with the group and the member."""


class ShareMember(NamedTuple):
    """A member. A change is a new value."""

    member_id: str
    subscription: ShareSubscription
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = {}  # noqa: RUF012  # Never changed.


class ShareGroup:
    """A `Group` whose members share partitions."""

    type: Final = GroupType.SHARE
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.epoch = 0
        """Raised whenever the assignment must be computed anew."""
        self.metadata_hash = 0
        self.assignment_epoch = 0
        """The group epoch that the targets are for."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.state = StatePartitions()

    @property
    def state_name(self) -> str:
        """Its state, as ListGroups spells it."""
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def is_expirable(self) -> bool:
        """It stays until somebody deletes it: it knows how far it has read."""
        return False

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics that a member is subscribed to."""
        return frozenset(
            name for member in self.members.values() for name in member.subscription.topics
        )

    def member(self, member_id: str) -> ShareMember:
        """A member that must be there."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"{self.group_id} has no member {member_id}")
        return found

    # Offsets and deletion.

    def validate_offset_commit(self, origin: CommitOrigin, now_ms: int) -> CommitCheck | None:
        """Nobody commits: a share group is no consumer group."""
        raise GroupIdNotFound(f"{self.group_id} is not a consumer group")

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """There are no committed offsets."""
        raise GroupIdNotFound(f"{self.group_id} is not a consumer group")

    def validate_offset_delete(self) -> None:
        """There are no committed offsets."""
        raise GroupIdNotFound(f"{self.group_id} is not a consumer group")

    def validate_delete(self) -> None:
        """Only without members."""
        if self.members:
            raise NonEmptyGroup(f"{self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return topic in self.topics

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Nothing is kept here that could expire."""
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group."""
        members = [
            record
            for member_id in {*self.members, *self.targets}
            for record in member_tombstones(self.group_id, member_id)
        ]
        return [*members, *group_tombstones(self.group_id)]

    def close(self, timers: TimerQueue, error: ApiError) -> None:
        """The group is gone from here; nobody waits."""
        for member_id in self.members:
            timers.cancel((self.group_id, member_id, SESSION))
