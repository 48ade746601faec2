"""`range`: neighbours among the partitions of each topic, the same for topics of equal size.

Members that are subscribed to the same topics of the same size get the same numbers of each, so
that records with equal keys in different topics meet in one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.coordinator.group.assignors.problem import Assignment, Problem
    from millstream.types import Uuid


def assign_range(problem: Problem) -> dict[str, Assignment]:
    """Give each topic's partitions, in order, to its subscribers, in order."""
    assigned: dict[str, dict[Uuid, frozenset[int]]] = {name: {} for name in problem.members}
    # Static members keep their place in the order when they come back under another id.
    ordered = sorted(
        problem.members,
        key=lambda name: (problem.members[name].instance_id is None, _key(problem, name)),
    )
    for topic, count in problem.partition_counts.items():
        subscribers = [name for name in ordered if topic in problem.members[name].topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for place, name in enumerate(subscribers):
            size = quota + (place < extra)
            if size:
                assigned[name][topic] = frozenset(range(start, start + size))
            start += size
    return dict(assigned)


def _key(problem: Problem, name: str) -> str:
    return problem.members[name].instance_id or name
