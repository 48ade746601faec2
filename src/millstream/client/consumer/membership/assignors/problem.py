"""What an assignor of the classic protocol is given, and what it must return.

The leader of a group builds these values from the members' subscriptions and from the metadata,
and calls the assignor that the members agreed on. An assignor of the user implements
`Assignor`. Nothing here speaks to a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from millstream.types import TopicPartition

GroupAssignment: TypeAlias = Mapping[str, Iterable[TopicPartition]]
"""Partitions by member id."""

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of the group, as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    """What it is subscribed to."""
    owned: frozenset[TopicPartition] = frozenset()
    """What it says it has. Members of eager assignors gave everything back before they joined."""
    generation: int = NO_GENERATION
    """The generation in which it got what it says it has."""
    instance_id: str | None = None
    """Set for static members, which come back under another member id."""
    rack: str | None = None
    user_data: bytes | None = None
    """What the same assignor of that member wanted to tell this one."""


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics of all members' subscriptions that exist."""

    partition_counts: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Where partitions have replicas; a partition that is not in it is everywhere alike."""

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, in order; none if it does not exist."""
        return [
            TopicPartition(topic, index) for index in range(self.partition_counts.get(topic, 0))
        ]


@dataclass(frozen=True, slots=True)
class PreviousAssignment:
    """What this member got last, which it may tell the next leader about."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


class Assignor(Protocol):
    """Decides who of a classic group reads what; runs in the member that leads the group.

    All members must have the same assignor under the same name. It runs on the client's I/O thread:
    it must not block, and what it raises ends the membership with that error.
    """

    @property
    def name(self) -> str:
        """What the members agree on, for example `range`."""

    @property
    def is_cooperative(self) -> bool:
        """Members keep what they have during a rebalance, and give up only what moves.

        Then `assign` must not give a partition to a member while another one still owns it.
        """

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """What to tell the leader's assignor when this member joins."""

    def assign(self, members: Mapping[str, GroupMember], topics: GroupTopics) -> GroupAssignment:
        """Give each partition to at most one member that is subscribed to its topic."""


def in_stable_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Members in an order that a static member does not change by coming back under another id."""
    return sorted(
        members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )


def racks_matter(members: Iterable[GroupMember], topics: GroupTopics) -> bool:
    """Whether some partition is nearer to some members than to others."""
    of_members = {each.rack for each in members if each.rack}
    if not of_members or not topics.racks:
        return False
    return any(not of_members <= racks for racks in topics.racks.values())


def is_near(member: GroupMember, partition: TopicPartition, topics: GroupTopics) -> bool:
    """Whether a replica of the partition is in the member's rack."""
    racks = topics.racks.get(partition)
    return racks is None or member.rack in racks
