"""Where reading of a partition begins: what the group has committed, an offset, an end, a time.

Seeks and `auto_offset_reset` are told in these values; `Positions` turns them into offsets. Plain
values: nothing here asks a broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.config.durations import duration_ms
from millstream.errors import InvalidArgument, InvalidConfig
from millstream.types import INT64_MAX

LATEST_TIMESTAMP: Final = -1
"""ListOffsets' word for the end of a log."""
EARLIEST_TIMESTAMP: Final = -2
"""ListOffsets' word for the start of a log."""

_BY_DURATION: Final = "by_duration:"


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """Where the group has committed; by the reset policy where it has not."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """At an offset. `leader_epoch` is of the record before it, -1 if that is not known."""

    offset: int
    leader_epoch: int = -1
    until: int = INT64_MAX
    """Nothing is asked for from this offset on; for reads that have an end."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """At the first record that is not older; at the end where there is none.

    Milliseconds since 1970, or EARLIEST_TIMESTAMP or LATEST_TIMESTAMP.
    """

    timestamp: int


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """As long ago, when it is looked up."""

    duration_ms: int


StartingPoint: TypeAlias = AtCommitted | AtOffset | AtTime | BeforeNow

EARLIEST: Final = AtTime(EARLIEST_TIMESTAMP)
LATEST: Final = AtTime(LATEST_TIMESTAMP)
COMMITTED: Final = AtCommitted()


def parse_reset(policy: str) -> AtTime | BeforeNow | None:
    """What `auto_offset_reset` says; None for "none"."""
    if policy.startswith(_BY_DURATION):
        try:
            return BeforeNow(duration_ms(policy.removeprefix(_BY_DURATION)))
        except InvalidConfig as error:
            raise InvalidArgument(f"auto_offset_reset={policy!r}: {error}") from error
    known = {"earliest": EARLIEST, "latest": LATEST, "none": None}
    if policy not in known:
        raise InvalidArgument(
            f"auto_offset_reset={policy!r}: must be earliest, latest, none or by_duration:PT1H"
        )
    return known[policy]
