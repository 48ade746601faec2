"""Times as people write them, into milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from millstream.cli.faults import UsageFault
from millstream.types import INT64_MAX

_RELATIVE = re.compile(r"([+-]?)(\d+)(ms|s|m|h|d)", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHOWN_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999, where calendars here end."""

TIME_SYNTAX: Final = "ISO 8601, milliseconds since 1970, now, or how long ago: 30s 15m 2h 7d"


def parse_time(text: str, now_ms: int) -> int:
    """Read a time; one without a zone is local time. `2h` and `-2h` are past, `+2h` is ahead."""
    if text == "now":
        return now_ms
    if text.isascii() and text.isdecimal():
        return _within_range(int(text), text)
    if relative := _RELATIVE.fullmatch(text):
        distance_ms = int(relative[2]) * _UNIT_MS[relative[3]]
        return _within_range(now_ms + (distance_ms if relative[1] == "+" else -distance_ms), text)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageFault(f"{text!r} is not a time; write {TIME_SYNTAX}") from error
    return _within_range(round(moment.timestamp() * 1000), text)


def show_time(timestamp_ms: int) -> str | None:
    """ISO 8601 in UTC; None for "no time"."""
    if not 0 <= timestamp_ms <= _SHOWN_MAX_MS:
        return None
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _within_range(timestamp_ms: int, text: str) -> int:
    if not 0 <= timestamp_ms <= INT64_MAX:
        raise UsageFault(f"{text!r} is before 1970 or beyond any time; write {TIME_SYNTAX}")
    return timestamp_ms
