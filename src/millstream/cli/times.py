"""Times and lengths of time on the command line: read as people write them, and shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from millstream.cli.faults import UsageFault
from millstream.config import times
from millstream.config.times import RELATIVE, TIME_SYNTAX, UNIT_MS, within_range
from millstream.errors import InvalidArgument

__all__ = [
    "DURATION_SYNTAX",
    "TIME_SYNTAX",
    "parse_ago",
    "parse_duration",
    "parse_time",
    "show_duration",
    "show_time",
]

_SHOWN_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999, where calendars here end."""

_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?", re.ASCII
)

DURATION_SYNTAX: Final = "30s 15m 2h 7d, or ISO 8601 as PT2H30M"


def parse_time(text: str, now_ms: int) -> int:
    """Read a time, as `config.times` does; a wrong one is the command line's fault."""
    try:
        return times.parse_time(text, now_ms)
    except InvalidArgument as error:
        raise UsageFault(str(error)) from error


def parse_duration(text: str) -> int:
    """Read a length of time, in milliseconds."""
    relative = RELATIVE.fullmatch(text)
    if relative and not relative[1]:
        return int(relative[2]) * UNIT_MS[relative[3]]
    iso = _ISO_DURATION.fullmatch(text.upper())
    if iso is None or not any(iso.groups()):
        raise UsageFault(f"{text!r} is not a length of time; write {DURATION_SYNTAX}")
    days, hours, minutes, seconds = (int(each or 0) for each in iso.groups()[:4])
    ms = int((iso[5] or "").ljust(3, "0"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + ms


def parse_ago(text: str, now_ms: int) -> int:
    """Read how long ago something was; when that was."""
    try:
        return within_range(now_ms - parse_duration(text), text)
    except InvalidArgument as error:
        raise UsageFault(str(error)) from error


def show_duration(ms: int) -> str:
    """`2h 5m`: the two largest units that are not 0."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ms = divmod(ms, UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def show_time(timestamp_ms: int) -> str | None:
    """ISO 8601 in UTC; None for "no time"."""
    if not 0 <= timestamp_ms <= _SHOWN_MAX_MS:
        return None
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
