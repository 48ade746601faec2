"""Conditions that the source meets by itself, and those that it leaves to Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from millstream.spark.source.filters import Interval, RowFilter, push
from millstream.spark.source.planning import OffsetRange


@dataclass
class EqualTo:
    """As Spark's: the names of the classes and of their attributes are what counts."""

    attribute: tuple[str, ...]
    value: Any


class EqualNullSafe(EqualTo): ...


class GreaterThan(EqualTo): ...


class GreaterThanOrEqual(EqualTo): ...


class LessThan(EqualTo): ...


class LessThanOrEqual(EqualTo): ...


class In(EqualTo): ...


class StringContains(EqualTo): ...


@dataclass
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass
class Not:
    child: Any


@pytest.mark.parametrize(
    ("condition", "interval"),
    [
        (EqualTo(("offset",), 5), Interval(5, 5)),
        (EqualNullSafe(("offset",), 5), Interval(5, 5)),
        (GreaterThan(("offset",), 5), Interval(low=6)),
        (GreaterThanOrEqual(("offset",), 5), Interval(low=5)),
        (LessThan(("offset",), 5), Interval(high=4)),
        (LessThanOrEqual(("offset",), 5), Interval(high=5)),
    ],
)
def test_comparisons_narrow_the_offsets(condition: Any, interval: Interval) -> None:
    wanted, left = push([condition])

    assert wanted == RowFilter(offset=interval)
    assert left == []


def test_conditions_are_met_together() -> None:
    wanted, left = push(
        [
            IsNotNull(("offset",)),
            GreaterThan(("offset",), 9),
            LessThan(("offset",), 20),
            GreaterThanOrEqual(("partition",), 1),
            In(("partition",), (0, 1, 2)),
            In(("partition",), (1, 2, 3)),
            EqualTo(("topic",), "a"),
            In(("topic",), ("a", "b")),
        ]
    )

    assert left == []
    assert wanted.narrow(
        [
            OffsetRange("a", 0, 0, 100),
            OffsetRange("a", 1, 0, 100),
            OffsetRange("a", 2, 15, 17),
            OffsetRange("a", 2, 50, 60),
            OffsetRange("a", 3, 0, 100),
            OffsetRange("b", 1, 0, 100),
        ]
    ) == [OffsetRange("a", 1, 10, 20), OffsetRange("a", 2, 15, 17)]


def test_times_are_compared_in_microseconds() -> None:
    at = datetime(2024, 5, 1, 12, 0, 0, 1500, tzinfo=UTC)
    us = 1_714_564_800_001_500

    wanted, left = push([GreaterThan(("timestamp",), at), LessThanOrEqual(("timestamp",), at)])

    assert left == []
    assert wanted.timestamp == Interval(us + 1, us)
    assert wanted.earliest_ms == us // 1000
    assert RowFilter().earliest_ms is None


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("key", "id"), 1),
        EqualTo(("offset",), "5"),
        EqualTo(("offset",), True),
        EqualTo(("topic",), None),
        In(("topic",), ("a", None)),
        In(("partition",), (1, None)),
        In(("offset",), (1, 2)),
        IsNotNull(("key",)),
        StringContains(("topic",), "a"),
        StringContains(("offset",), 1),
        Not(EqualTo(("offset",), 5)),
        EqualTo(("timestamp",), datetime(2024, 5, 1)),  # noqa: DTZ001  # Of no zone.
        EqualTo(("timestamp",), 5),
    ],
)
def test_the_rest_is_left_to_spark(condition: Any) -> None:
    assert push([condition]) == (RowFilter(), [condition])
