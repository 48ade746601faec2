"""What became of records, and how a broker is told: by ranges of offsets with one type or many."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition

GAP: Final = 0
"""There is no record at an offset that was acquired: it was compacted away, or is a marker."""


class AcknowledgeType(IntEnum):
    """What became of a record, by the numbers on the wire."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not: somebody may try again."""
    REJECT = 3
    """It cannot be: nobody shall try again."""
    RENEW = 4
    """It still is being processed: begin its lock anew."""


Decisions: TypeAlias = Mapping[int, int]
"""Types by offset."""

OnAcknowledged: TypeAlias = (
    "Callable[[Mapping[TopicPartition, frozenset[int]], MillstreamError | None], object]"
)
"""Told which offsets were acknowledged, or why that failed; with asyncio it may be awaited."""


class Range(NamedTuple):
    """Offsets in a row, with one type for all or one for each."""

    first_offset: int
    last_offset: int
    types: list[int]


def ranges_of(decisions: Decisions) -> list[Range]:
    """Decisions as few ranges, in order."""
    found: list[Range] = []
    first = last = -1
    types: list[int] = []
    for offset in sorted(decisions):
        if types and offset == last + 1:
            types.append(decisions[offset])
        else:
            if types:
                found.append(_range(first, last, types))
            first, types = offset, [decisions[offset]]
        last = offset
    if types:
        found.append(_range(first, last, types))
    return found


def _range(first: int, last: int, types: list[int]) -> Range:
    is_uniform = types.count(types[0]) == len(types)
    return Range(first, last, types[:1] if is_uniform else types)


def as_acknowledge_type(given: AcknowledgeType | str) -> AcknowledgeType:
    """A type, or its name as users write it."""
    if isinstance(given, AcknowledgeType):
        return given
    try:
        return AcknowledgeType[given.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(each.name.lower() for each in AcknowledgeType)
        raise InvalidArgument(f"acknowledge with one of {names}, not {given!r}") from None
