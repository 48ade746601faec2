"""Times as people write them, into milliseconds since 1970.

Commands and the definitions of pipelines read them with `parse_time`. It is told what time it is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from millstream.errors import InvalidArgument
from millstream.types import INT64_MAX

RELATIVE: Final = re.compile(r"([+-]?)(\d+)(ms|s|m|h|d)", re.ASCII)
UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME_SYNTAX: Final = "ISO 8601, milliseconds since 1970, now, or how long ago: 30s 15m 2h 7d"


def parse_time(text: str, now_ms: int) -> int:
    """Read a time; one without a zone is local time. `2h` and `-2h` are past, `+2h` is ahead."""
    if text == "now":
        return now_ms
    if text.isascii() and text.isdecimal():
        return within_range(int(text), text)
    if relative := RELATIVE.fullmatch(text):
        distance_ms = int(relative[2]) * UNIT_MS[relative[3]]
        return within_range(now_ms + (distance_ms if relative[1] == "+" else -distance_ms), text)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{text!r} is not a time; write {TIME_SYNTAX}") from error
    return within_range(round(moment.timestamp() * 1000), text)


def within_range(timestamp_ms: int, text: str) -> int:
    """A time that a record can have."""
    if not 0 <= timestamp_ms <= INT64_MAX:
        raise InvalidArgument(f"{text!r} is before 1970 or beyond any time; write {TIME_SYNTAX}")
    return timestamp_ms
