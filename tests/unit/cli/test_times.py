"""Times as people write them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import UsageFault
from millstream.cli.times import (
    parse_ago,
    parse_duration,
    parse_time,
    show_duration,
    show_time,
)

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


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("PT2H30M", 9_000_000),
        ("P1DT1S", 86_401_000),
        ("pt0.5s", 500),
        ("PT0S", 0),
    ],
)
def test_lengths_of_time_are_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_ago(text, NOW) == NOW - ms


@pytest.mark.parametrize("text", ["", "2", "-2h", "2w", "P", "PT", "P1Y", "now"])
def test_what_is_no_length_of_time_gets_the_syntax(text: str) -> None:
    with pytest.raises(UsageFault, match="write 30s 15m 2h 7d, or ISO 8601 as PT2H30M"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (999, "0s"), (61_000, "1m 1s"), (90_061_000, "1d 1h"), (3_600_000, "1h")],
)
def test_lengths_of_time_are_shown_short(ms: int, text: str) -> None:
    assert show_duration(ms) == text
