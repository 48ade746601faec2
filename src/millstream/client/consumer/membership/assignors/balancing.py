"""Shares as equal as subscriptions allow, starting from what members had.

What both sticky assignors compute. Members that are subscribed to the same topics end with numbers
of partitions that differ by at most one; otherwise nobody has two more than somebody who could
take one of them.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.problem import (
    in_stable_order,
    is_near,
    racks_matter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.client.consumer.membership.assignors.problem import GroupMember, GroupTopics
    from millstream.types import TopicPartition


class Balancer:
    """Partitions on their way to members; used once."""

    def __init__(self, members: Mapping[str, GroupMember], topics: GroupTopics) -> None:
        self._members = {each.member_id: each for each in in_stable_order(members.values())}
        self._topics = topics
        self._uses_racks = racks_matter(self._members.values(), topics)
        self._had = _uncontested(self._members.values())
        self._owned: dict[str, set[TopicPartition]] = {name: set() for name in self._members}

    def assign(self) -> dict[str, list[TopicPartition]]:
        """What each member gets, in order."""
        if len({each.topics for each in self._members.values()}) == 1:
            self._assign_equally()
        else:
            self._assign_by_subscription()
        return {name: sorted(partitions) for name, partitions in self._owned.items()}

    # All members want the same.

    def _assign_equally(self) -> None:
        """Everybody keeps up to its share; what is left goes to those who have less."""
        topics = next(iter(self._members.values())).topics
        wanted = [each for topic in sorted(topics) for each in self._topics.partitions_of(topic)]
        quota, extra = divmod(len(wanted), len(self._members))
        free = set(wanted)
        # The member with most keeps the extra ones: one with less would have to be given one.
        for name in sorted(self._members, key=lambda each: -len(self._had[each])):
            kept = self._had[name] & free
            room = quota + (extra > 0)
            if len(kept) > room:
                kept = set(self._nearest_first(name, kept)[:room])
            extra -= len(kept) > quota
            self._owned[name] = kept
            free -= kept
        self._fill([each for each in wanted if each in free], quota, extra)

    def _nearest_first(
        self, name: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        member = self._members[name]
        return sorted(partitions, key=lambda each: (not is_near(member, each, self._topics), each))

    def _fill(self, free: list[TopicPartition], quota: int, extra: int) -> None:
        rooms = {name: quota - len(owned) for name, owned in self._owned.items()}
        for name, room in rooms.items():
            if extra > 0 and room >= 0:
                rooms[name] += 1
                extra -= 1
        left = self._give_near_ones(free, rooms) if self._uses_racks else free
        takers = (name for name, room in rooms.items() for _ in range(room))
        for each, name in zip(left, takers, strict=True):
            self._owned[name].add(each)

    def _give_near_ones(
        self, free: list[TopicPartition], rooms: dict[str, int]
    ) -> list[TopicPartition]:
        """Give what has a replica in a member's rack; the partitions that have not."""
        by_rack: dict[str | None, list[str]] = {}
        for name in reversed(rooms):
            by_rack.setdefault(self._members[name].rack, []).append(name)
        left = []
        for each in free:
            taker = None
            for rack in sorted(self._topics.racks.get(each, ())):
                names = by_rack.get(rack, [])
                while names and rooms[names[-1]] <= 0:
                    names.pop()
                if names:
                    taker = names[-1]
                    break
            if taker is None:
                left.append(each)
            else:
                self._owned[taker].add(each)
                rooms[taker] -= 1
        return left

    # Members want different things.

    def _assign_by_subscription(self) -> None:
        """Keep what can be kept, give the rest to whoever has least, then even out."""
        subscribers: dict[str, list[str]] = {}
        for name, member in self._members.items():
            for topic in member.topics:
                subscribers.setdefault(topic, []).append(name)
        owners = {each: name for name, had in self._had.items() for each in had}
        free = []
        for topic in sorted(subscribers, key=lambda each: (len(subscribers[each]), each)):
            for each in self._topics.partitions_of(topic):
                owner = owners.get(each)
                if owner is None or topic not in self._members[owner].topics:
                    free.append(each)
                else:
                    self._owned[owner].add(each)
        self._give(free, subscribers)
        self._even_out(subscribers)

    def _give(self, free: list[TopicPartition], subscribers: dict[str, list[str]]) -> None:
        heaps: dict[str, list[tuple[int, str]]] = {}
        for each in free:
            heap = heaps.get(each.topic)
            if heap is None:
                heap = [(len(self._owned[name]), name) for name in subscribers[each.topic]]
                heapify(heap)
                heaps[each.topic] = heap
            # Counts in the heap may be old: a member that got something meanwhile goes back into
            # it.
            while heap[0][0] != len(self._owned[heap[0][1]]):
                _, name = heappop(heap)
                heappush(heap, (len(self._owned[name]), name))
            _, name = heappop(heap)
            self._owned[name].add(each)
            heappush(heap, (len(self._owned[name]), name))

    def _even_out(self, subscribers: dict[str, list[str]]) -> None:
        """Move partitions from members with more to members with less, while that helps."""
        is_moving = True
        while is_moving:
            is_moving = False
            for name in sorted(self._owned, key=lambda each: (-len(self._owned[each]), each)):
                is_moving |= self._hand_over(name, subscribers)

    def _hand_over(self, name: str, subscribers: dict[str, list[str]]) -> bool:
        has_moved = False
        # What it got only now goes first: moving that disturbs nobody.
        had = self._had[name]
        for each in sorted(self._owned[name], key=lambda each: (each in had, each)):
            least = min(subscribers[each.topic], key=lambda other: (len(self._owned[other]), other))
            if len(self._owned[least]) + 1 < len(self._owned[name]):
                self._owned[name].discard(each)
                self._owned[least].add(each)
                has_moved = True
        return has_moved


def _uncontested(members: Iterable[GroupMember]) -> dict[str, set[TopicPartition]]:
    """What each member had; of two who claim a partition, the one of the later generation.

    Two claims of one generation cannot both be true, so neither is believed.
    """
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    found: dict[str, set[TopicPartition]] = {}
    for member in members:
        found[member.member_id] = set()
        for each in member.owned:
            generation, _ = claims.get(each, (member.generation - 1, None))
            if generation < member.generation:
                claims[each] = (member.generation, member.member_id)
            elif generation == member.generation:
                claims[each] = (generation, None)
    for each, (_, name) in claims.items():
        if name is not None:
            found[name].add(each)
    return found
