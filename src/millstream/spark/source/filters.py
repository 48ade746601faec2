"""Conditions of a query that the source itself can meet: on partition, offset, timestamp and topic.

`pushFilters` hands over what Spark offers; a `RowFilter` is made of what can be met exactly. The
planner uses it to read less, the tasks to send less. What is left over Spark checks by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.spark.source.planning import OffsetRange

_MIN: Final = -INT64_MAX - 1
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, both included."""

    low: int = _MIN
    high: int = INT64_MAX

    def narrowed(self, low: int = _MIN, high: int = INT64_MAX) -> Interval:
        """What is in both."""
        return Interval(max(self.low, low), min(self.high, high))

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high

    @property
    def is_all(self) -> bool:
        """Whether it excludes nothing."""
        return self.low == _MIN and self.high == INT64_MAX


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which records are wanted. Times are in microseconds, as Spark's are."""

    partition: Interval = field(default=Interval())
    partitions: frozenset[int] | None = None
    offset: Interval = field(default=Interval())
    timestamp: Interval = field(default=Interval())
    topics: frozenset[str] | None = None

    def wants(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition may be wanted."""
        return (
            partition in self.partition
            and (self.partitions is None or partition in self.partitions)
            and (self.topics is None or topic in self.topics)
        )

    def narrow(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What may be wanted of ranges."""
        found = []
        for each in ranges:
            start = max(each.start, self.offset.low)
            end = min(each.end, min(self.offset.high, INT64_MAX - 1) + 1)
            if start < end and self.wants(each.topic, each.partition):
                found.append(replace(each, start=start, end=end))
        return found

    @property
    def earliest_ms(self) -> int | None:
        """No older record is wanted; None if there is no such bound."""
        return None if self.timestamp.low <= 0 else self.timestamp.low // 1000


def push(filters: Iterable[Any]) -> tuple[RowFilter, list[Any]]:
    """A filter that does what can be done of Spark's, and those that are left to Spark."""
    wanted = RowFilter()
    left = []
    for each in filters:
        narrowed = _narrowed(wanted, each)
        if narrowed is None:
            left.append(each)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(wanted: RowFilter, condition: Any) -> RowFilter | None:
    """With the condition as well; None if it cannot be met here."""
    kind = type(condition).__name__
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1:
        return None
    column = path[0]
    if kind == "IsNotNull":
        return wanted if column in _NEVER_NULL else None
    value = condition.value if hasattr(condition, "value") else None
    if column == "topic":
        return _with_topics(wanted, kind, value)
    if kind == "In" and column == "partition":
        return _with_partitions(wanted, value)
    if column not in ("partition", "offset", "timestamp"):
        return None
    number = _number(column, value)
    bounds = None if number is None else _bounds(kind, number)
    if bounds is None:
        return None
    match column:
        case "partition":
            return replace(wanted, partition=wanted.partition.narrowed(*bounds))
        case "offset":
            return replace(wanted, offset=wanted.offset.narrowed(*bounds))
        case _:
            return replace(wanted, timestamp=wanted.timestamp.narrowed(*bounds))


def _with_topics(wanted: RowFilter, kind: str, value: Any) -> RowFilter | None:
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        names = frozenset({value})
    elif kind == "In" and all(isinstance(each, str) for each in value):
        names = frozenset(value)
    else:
        return None
    return replace(wanted, topics=names if wanted.topics is None else wanted.topics & names)


def _with_partitions(wanted: RowFilter, value: Any) -> RowFilter | None:
    if not all(_number("partition", each) is not None for each in value):
        return None
    numbers = frozenset(value)
    before = wanted.partitions
    return replace(wanted, partitions=numbers if before is None else before & numbers)


def _bounds(kind: str, number: int) -> tuple[int, int] | None:
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return number, number
        case "GreaterThan":
            return min(number, INT64_MAX - 1) + 1, INT64_MAX
        case "GreaterThanOrEqual":
            return number, INT64_MAX
        case "LessThan":
            return _MIN, max(number, _MIN + 1) - 1
        case "LessThanOrEqual":
            return _MIN, number
    return None


def _number(column: str, value: Any) -> int | None:
    """A value of a column as a number; None if it is of another type."""
    if column != "timestamp":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
