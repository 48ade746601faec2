"""Times as people write them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import UsageFault
from millstream.cli.times import parse_time, show_time

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("500ms", NOW - 500),
        ("30s", NOW - 30_000),
        ("-15m", NOW - 900_000),
        ("+2h", NOW + 7_200_000),
        ("7d", NOW - 604_800_000),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20.5+01:00", NOW + 500),
    ],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.fixture
def five_hours_ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "AHEAD-5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("five_hours_ahead")
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2023-11-14T22:13:20", "2023-11-14T22:13:20+05:00"),
        ("2023-11-14", "2023-11-14T00:00:00+05:00"),
    ],
)
def test_a_time_without_a_zone_is_local(text: str, same: str) -> None:
    assert parse_time(text, NOW) == parse_time(same, NOW)


@pytest.mark.parametrize("text", ["", "yesterday", "-", "5w", "²", "h", "9999999d", "9" * 20])
def test_what_is_no_time_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageFault, match="write ISO 8601"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW + 7, "2023-11-14T22:13:20.007Z"),
        ((1 << 63) - 1, None),
    ],
)
def test_times_are_shown(timestamp: int, expected: str | None) -> None:
    assert show_time(timestamp) == expected
