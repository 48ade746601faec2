"""ISO 8601 durations of days and less, as `by_duration:` has them: P1DT2H30M, PT0.5S."""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import InvalidConfig

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int:
    """A duration in milliseconds; raises InvalidConfig if it is none."""
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else match.groupdict()
    if not any(parts.values()):
        raise InvalidConfig(f"{text!r} is no ISO 8601 duration such as PT1H")
    return int(sum(float(parts[unit] or 0) * ms for unit, ms in _MS.items()))
