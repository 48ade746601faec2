"""Who of a classic group reads what: decided by the member that leads the group.

`ASSIGNORS` has Kafka's own by their names, compatible with Java's and librdkafka's members in the
same group; `resolve` also takes whatever implements `Assignor`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.problem import (
    Assignor,
    GroupMember,
    GroupTopics,
    PreviousAssignment,
)
from millstream.client.consumer.membership.assignors.range import RangeAssignor
from millstream.client.consumer.membership.assignors.round_robin import RoundRobinAssignor
from millstream.client.consumer.membership.assignors.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from millstream.config import nearest_key
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "ASSIGNORS",
    "DEFAULT_ASSIGNORS",
    "Assignor",
    "GroupMember",
    "GroupTopics",
    "PreviousAssignment",
    "resolve",
]

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {
        each.name: each
        for each in (
            RangeAssignor(),
            RoundRobinAssignor(),
            StickyAssignor(),
            CooperativeStickyAssignor(),
        )
    }
)
"""Kafka's assignors by name."""

DEFAULT_ASSIGNORS: tuple[Assignor, ...] = (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"])
"""What a member offers unless told otherwise; the same as Java's, so that mixed groups agree."""

_JAVA_CLASSES = MappingProxyType(
    {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "StickyAssignor": "sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
)


def resolve(choices: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors that a setting names, in order of preference; Java's class names will do."""
    found: dict[str, Assignor] = {}
    for choice in choices:
        assignor = _named(choice) if isinstance(choice, str) else choice
        if assignor.name in found:
            raise InvalidArgument(f"assignor {assignor.name!r} is given twice: name each once")
        found[assignor.name] = assignor
    if not found:
        raise InvalidArgument(f"no assignor is given; there are {', '.join(sorted(ASSIGNORS))}")
    return tuple(found.values())


def _named(choice: str) -> Assignor:
    name = choice.strip()
    name = _JAVA_CLASSES.get(name.rpartition(".")[2], name)
    assignor = ASSIGNORS.get(name)
    if assignor is None:
        nearest = nearest_key(name.rpartition(".")[2], [*ASSIGNORS, *_JAVA_CLASSES])
        meant = f" (did you mean {nearest}?)" if nearest else ""
        raise InvalidArgument(
            f"there is no assignor {choice!r}{meant}: "
            f"choose among {', '.join(sorted(ASSIGNORS))} or pass "
            "an object that implements Assignor"
        )
    return assignor
