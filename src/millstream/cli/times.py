"""Times as people write them, into milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from millstream.cli.faults import UsageFault

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

TIME_SYNTAX: Final = "ISO 8601, milliseconds since 1970, or how long ago: 30s 15m 2h 7d"


def parse_time(text: str, now_ms: int) -> int:
    """Read a time; one without a zone is local time."""
    if text.isdecimal():
        return int(text)
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageFault(f"{text!r} is not a time; write {TIME_SYNTAX}") from error
    return round(moment.astimezone(UTC).timestamp() * 1000)


def show_time(timestamp_ms: int) -> str | None:
    """ISO 8601 in UTC; None for "no time"."""
    if timestamp_ms < 0:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
