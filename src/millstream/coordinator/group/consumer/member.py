"""One member of a consumer group: what it asked for, and how far it has come."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.types import Uuid

    OwnedPartitions: TypeAlias = Mapping[Uuid, Mapping[int, int]]
    """Partitions by topic id, each with the member epoch in which it was assigned."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member that will be back: its place is kept for the session timeout."""


class MemberState(IntEnum):
    """How far a member has followed the target assignment, by the number in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must let go of partitions before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others must let go of."""
    UNKNOWN = 127


class ClassicProtocols(NamedTuple):
    """What a member of the classic protocol has said, while it is part of a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """What a member asks for, and who it is: its record."""

    client_id: str
    client_host: str
    instance_id: str | None = None
    rack: str | None = None
    topics: tuple[str, ...] = ()
    """Sorted names."""
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None

    def asks_for_other_topics_than(self, other: Subscription | None) -> bool:
        """Whether the group's assignment must be computed anew."""
        return (
            other is None
            or self.topics != other.topics
            or self.regex != other.regex
            or self.assignor != other.assignor
            or self.rack != other.rack
        )


class Progress(NamedTuple):
    """How far a member has come: its other record."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = {}  # noqa: RUF012  # Never changed.
    pending_revocation: OwnedPartitions = {}  # noqa: RUF012  # Never changed.

    @property
    def assignment(self) -> Assignment:
        """The partitions that it may read."""
        return {topic: frozenset(partitions) for topic, partitions in self.assigned.items()}

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all of the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


class ConsumerMember(NamedTuple):
    """A member of a group. A change is a new value."""

    member_id: str
    subscription: Subscription
    progress: Progress = Progress()

    @property
    def epoch(self) -> int:
        """The epoch of the group that it has reached."""
        return self.progress.epoch

    @property
    def instance_id(self) -> str | None:
        """Its name, if it is a static member."""
        return self.subscription.instance_id
