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

_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?", re.ASCII
)

DURATION_SYNTAX: Final = "30s 15m 2h 7d, or ISO 8601 as PT2H30M"
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


def parse_duration(text: str) -> int:
    """Read a length of time, in milliseconds."""
    relative = _RELATIVE.fullmatch(text)
    if relative and not relative[1]:
        return int(relative[2]) * _UNIT_MS[relative[3]]
    iso = _ISO_DURATION.fullmatch(text.upper())
    if iso is None or not any(iso.groups()):
        raise UsageFault(f"{text!r} is not a length of time; write {DURATION_SYNTAX}")
    days, hours, minutes, seconds = (int(each or 0) for each in iso.groups()[:4])
    ms = int((iso[5] or "").ljust(3, "0"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + ms


def parse_ago(text: str, now_ms: int) -> int:
    """Read how long ago something was; when that was."""
    return _within_range(now_ms - parse_duration(text), text)


def show_duration(ms: int) -> str:
    """`2h 5m`: the two largest units that are not 0."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ms = divmod(ms, _UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


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
