"""`range`: neighbouring partitions of each topic, the same numbers for topics of equal size.

Topics of one size with the same subscribers are spread alike, so that records with equal keys in
different topics meet in one member. Among partitions that could go to several members, those with
a replica in a member's rack go there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.problem import in_stable_order, racks_matter
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.membership.assignors.problem import (
        GroupMember,
        GroupTopics,
        PreviousAssignment,
    )


class RangeAssignor:
    """Java's RangeAssignor: its members and ours can be in one group."""

    name = "range"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Nothing: ranges do not depend on the past."""
        return None

    def assign(
        self, members: Mapping[str, GroupMember], topics: GroupTopics
    ) -> dict[str, list[TopicPartition]]:
        """Give each topic's partitions, in order, to its subscribers, in order."""
        found: dict[str, list[TopicPartition]] = {name: [] for name in members}
        for (member_ids, count), names in _alike(members, topics).items():
            subscribers = [members[name] for name in member_ids]
            for member_id, indexes in _ranges(subscribers, count, names, topics).items():
                found[member_id] += [
                    TopicPartition(topic, index) for topic in names for index in sorted(indexes)
                ]
        return found


def _alike(
    members: Mapping[str, GroupMember], topics: GroupTopics
) -> dict[tuple[tuple[str, ...], int], list[str]]:
    """Topics that must be spread alike, by their subscribers (in order) and their size."""
    ordered = in_stable_order(members.values())
    found: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic in sorted(topics.partition_counts):
        subscribers = tuple(each.member_id for each in ordered if topic in each.topics)
        if subscribers:
            found.setdefault((subscribers, topics.partition_counts[topic]), []).append(topic)
    return found


def _ranges(
    subscribers: list[GroupMember], count: int, names: list[str], topics: GroupTopics
) -> dict[str, set[int]]:
    """Which partition numbers each subscriber gets, of every one of these topics."""
    rooms = _Rooms(subscribers, count)
    free = list(range(count))
    if racks_matter(subscribers, topics):
        free = _give_near_ones(free, subscribers, names, topics, rooms)
    for index, member in zip(free, rooms.in_order(), strict=True):
        rooms.taken[member.member_id].add(index)
    return rooms.taken


def _give_near_ones(
    free: list[int],
    subscribers: list[GroupMember],
    names: list[str],
    topics: GroupTopics,
    rooms: _Rooms,
) -> list[int]:
    left = []
    for index in free:
        replicas = [topics.racks.get(TopicPartition(topic, index), frozenset()) for topic in names]
        racks = frozenset.intersection(*replicas)
        near = (each for each in subscribers if each.rack in racks and rooms.has(each))
        taker = next(near, None)
        if taker is None:
            left.append(index)
        else:
            rooms.taken[taker.member_id].add(index)
    return left


class _Rooms:
    """How much of `count` partitions each member may still take: equal shares, some one more."""

    def __init__(self, members: list[GroupMember], count: int) -> None:
        self._members = members
        self._quota, self._extra = divmod(count, len(members))
        self.taken: dict[str, set[int]] = {each.member_id: set() for each in members}

    def has(self, member: GroupMember) -> bool:
        """Whether there is room; the extra partitions are for whoever comes first."""
        size = len(self.taken[member.member_id])
        return size < self._quota or (size == self._quota and self._larger() < self._extra)

    def in_order(self) -> list[GroupMember]:
        """Takers for all partitions that are left, each as often as it has room."""
        extra = self._extra - self._larger()
        takers: list[GroupMember] = []
        for member in self._members:
            size = len(self.taken[member.member_id])
            takes_extra = extra > 0 and size <= self._quota
            extra -= takes_extra
            takers += [member] * (max(0, self._quota - size) + takes_extra)
        return takers

    def _larger(self) -> int:
        return sum(len(each) > self._quota for each in self.taken.values())
