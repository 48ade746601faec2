"""`uniform`: every member gets as many partitions as the others, and keeps what it had.

If members are subscribed to different topics, they come as near to that as their subscriptions
allow. Partitions go, where there is a choice, to members in the rack of a replica.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.coordinator.group.assignors.problem import Assignment, Problem
    from millstream.types import Uuid


def assign_uniformly(problem: Problem) -> dict[str, Assignment]:
    """Balance the partitions of all topics over all members."""
    subscriptions = {each.topics for each in problem.members.values()}
    if len(subscriptions) == 1 and not problem.racks:
        moved = _with_few_moves(problem, *subscriptions)
        if moved is not None:
            return moved
    balancer = _Balancer(problem)
    if len(subscriptions) <= 1:
        balancer.assign_equally()
    else:
        balancer.assign_by_subscription()
    return balancer.result()


def _with_few_moves(problem: Problem, topics: frozenset[Uuid]) -> dict[str, Assignment] | None:
    """Start from what members have, where all want the same and no partition is nearer to some.

    So it is with most groups, and then only members with too much or too little need a look. None
    if what they have is not a part of what there is.
    """
    free = {topic: set(range(problem.partition_counts.get(topic, 0))) for topic in sorted(topics)}
    total = sum(map(len, free.values()))
    counts: dict[str, int] = {}
    for name, needs in problem.members.items():
        count = 0
        for topic, partitions in needs.target.items():
            if topic not in free:
                return None
            free[topic] -= partitions
            count += len(partitions)
        counts[name] = count
    spare = [(topic, each) for topic, rest in free.items() for each in sorted(rest)]
    if sum(counts.values()) + len(spare) != total:
        return None
    return _moved(problem, counts, spare, *divmod(total, len(counts)))


def _moved(
    problem: Problem,
    counts: Mapping[str, int],
    spare: list[tuple[Uuid, int]],
    quota: int,
    extra: int,
) -> dict[str, Assignment]:
    """Take from members with more than their share, and give it to those with less."""
    found = {name: needs.target for name, needs in problem.members.items()}
    for name, count in counts.items():
        if count > quota:
            room = quota + (extra > 0)
            extra -= room > quota
            if count > room:
                had = sorted(_pairs(found[name]))
                found[name] = _by_topic(had[:room])
                spare += had[room:]
    if spare:
        left = iter(spare)
        for name in sorted([name for name, count in counts.items() if count <= quota]):
            room = quota + (extra > 0) - counts[name]
            extra -= extra > 0
            if room:
                found[name] = _by_topic([*_pairs(found[name]), *islice(left, room)])
    return found


def _pairs(assignment: Assignment) -> Iterable[tuple[Uuid, int]]:
    return ((topic, each) for topic, partitions in assignment.items() for each in partitions)


def _by_topic(partitions: Iterable[tuple[Uuid, int]]) -> Assignment:
    found: dict[Uuid, set[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(each) for topic, each in sorted(found.items())}


class _Balancer:
    """Partitions on their way to members."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._owned: dict[str, set[tuple[Uuid, int]]] = {name: set() for name in problem.members}
        self._had = {name: set(_pairs(needs.target)) for name, needs in problem.members.items()}

    def result(self) -> dict[str, Assignment]:
        """What each member got."""
        found: dict[str, Assignment] = {}
        for name, partitions in self._owned.items():
            if partitions == self._had[name]:
                found[name] = self._problem.members[name].target
                continue
            found[name] = _by_topic(partitions)
        return found

    # All members want the same.

    def assign_equally(self) -> None:
        """Everybody keeps up to its share; what is left goes to those who have less."""
        problem = self._problem
        if not problem.members:
            return
        topics = next(iter(problem.members.values())).topics
        wanted = [
            (topic, partition)
            for topic in sorted(topics)
            for partition in range(problem.partition_counts.get(topic, 0))
        ]
        quota, extra = divmod(len(wanted), len(problem.members))
        free = self._keep(set(wanted), quota, extra)
        self._fill([each for each in wanted if each in free], quota, extra)

    def _keep(self, wanted: set[tuple[Uuid, int]], quota: int, extra: int) -> set[tuple[Uuid, int]]:
        """Let members keep what they had; the partitions that nobody keeps."""
        free = set(wanted)
        for name, had in sorted(self._had.items(), key=lambda each: -len(each[1])):
            kept = had & free
            room = quota + (extra > 0)
            if len(kept) > room:
                nearest = sorted(kept, key=lambda each: (not self._is_near(name, each), each))
                kept = set(nearest[:room])
            if len(kept) > quota:
                extra -= 1
            self._owned[name] = kept
            free -= kept
        return free

    def _fill(self, free: list[tuple[Uuid, int]], quota: int, extra: int) -> None:
        """Give away what is free, near partitions first, until everybody has its share."""
        extra -= sum(len(each) > quota for each in self._owned.values())
        rooms = {name: quota - len(owned) for name, owned in self._owned.items()}
        names = sorted(rooms)
        for name in names:
            if extra > 0 and rooms[name] >= 0:
                rooms[name] += 1
                extra -= 1
        names = [name for name in names if rooms[name] > 0]
        left = []
        by_rack = self._names_by_rack(names)
        for each in free:
            near = self._first_with_room(each, by_rack, rooms)
            if near is None:
                left.append(each)
            else:
                self._owned[near].add(each)
                rooms[near] -= 1
        takers = (name for name in names for _ in range(rooms[name]))
        for each, name in zip(left, takers, strict=True):
            self._owned[name].add(each)

    def _names_by_rack(self, names: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if self._problem.racks:
            for name in names:
                rack = self._problem.members[name].rack
                if rack is not None:
                    found.setdefault(rack, []).append(name)
        return found

    def _first_with_room(
        self, partition: tuple[Uuid, int], by_rack: dict[str, list[str]], rooms: dict[str, int]
    ) -> str | None:
        for rack in sorted(self._problem.racks.get(partition, ())):
            names = by_rack.get(rack, [])
            while names and rooms[names[0]] <= 0:
                names.pop(0)
            if names:
                return names[0]
        return None

    # Members want different things.

    def assign_by_subscription(self) -> None:
        """Keep what can be kept, give the rest to whoever has least, then even out."""
        problem = self._problem
        subscribers: dict[Uuid, list[str]] = {}
        for name in sorted(problem.members):
            for topic in problem.members[name].topics:
                subscribers.setdefault(topic, []).append(name)
        free = []
        for topic in sorted(subscribers, key=lambda each: (len(subscribers[each]), each)):
            owners = {
                partition: name
                for name in subscribers[topic]
                for partition in problem.members[name].target.get(topic, ())
            }
            for partition in range(problem.partition_counts.get(topic, 0)):
                owner = owners.get(partition)
                if owner is None:
                    free.append((topic, partition))
                else:
                    self._owned[owner].add((topic, partition))
        self._give(free, subscribers)
        self._even_out(subscribers)

    def _give(self, free: list[tuple[Uuid, int]], subscribers: dict[Uuid, list[str]]) -> None:
        heaps: dict[Uuid, list[tuple[int, str]]] = {}
        for topic, partition in free:
            heap = heaps.get(topic)
            if heap is None:
                heap = heaps[topic] = [
                    (len(self._owned[name]), name) for name in subscribers[topic]
                ]
                heapify(heap)
            # Counts in the heap may be old: whoever got something meanwhile goes back into it.
            while heap[0][0] != len(self._owned[heap[0][1]]):
                _, name = heappop(heap)
                heappush(heap, (len(self._owned[name]), name))
            _, name = heappop(heap)
            self._owned[name].add((topic, partition))
            heappush(heap, (len(self._owned[name]), name))

    def _even_out(self, subscribers: dict[Uuid, list[str]]) -> None:
        """Move partitions from members with more to members with less, while that helps."""
        is_moving = True
        while is_moving:
            is_moving = False
            for name in sorted(self._owned, key=lambda each: (-len(self._owned[each]), each)):
                for each in sorted(self._owned[name]):
                    least = min(subscribers[each[0]], key=lambda n: (len(self._owned[n]), n))
                    if len(self._owned[least]) + 1 < len(self._owned[name]):
                        self._owned[name].discard(each)
                        self._owned[least].add(each)
                        is_moving = True

    def _is_near(self, name: str, partition: tuple[Uuid, int]) -> bool:
        racks = self._problem.racks.get(partition)
        return not racks or self._problem.members[name].rack in racks
