"""The clock of one simulated machine: virtual time, as wrong as clocks are.

It may run a little fast or slow, begin anywhere, and its wall time may jump; its monotonic time
never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.testing.simulation.schedule import Schedule

EPOCH_MS: Final = 1_700_000_000_000
"""When simulations begin."""
_MILLION: Final = 1_000_000


class SimClock:
    """A `Clock` that shows the time of a schedule."""

    __slots__ = ("_offset_us", "_rate", "_schedule", "_wall_offset_ms")

    def __init__(self, schedule: Schedule, *, offset_us: int = 0, drift_ppm: int = 0) -> None:
        """`drift_ppm`: how many microseconds it gains in a second."""
        self._schedule = schedule
        self._offset_us = offset_us
        self._rate = _MILLION + drift_ppm
        self._wall_offset_ms = 0

    def now_us(self) -> int:
        """Monotonic, in microseconds."""
        return self._offset_us + self._schedule.now_us * self._rate // _MILLION

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return self.now_us() // 1000

    def wall_ms(self) -> int:
        """See `Clock`."""
        passed_ms = self._schedule.now_us * self._rate // (_MILLION * 1000)
        return EPOCH_MS + self._wall_offset_ms + passed_ms

    def jump_wall(self, ms: int) -> None:
        """Correct the wall clock, as NTP or an operator does."""
        self._wall_offset_ms += ms

    def true_us(self, own_us: int) -> int:
        """How long a time by this clock is, never too short."""
        return max(0, -(-own_us * _MILLION // self._rate))
