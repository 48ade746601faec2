"""The time, as a thing that is handed in. The only module that reads a clock.

Drivers hold a `Clock`; state machines are told the time as an argument and never see one.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Answers two different questions: what time is it, and how much time has passed."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970: for timestamps and retention. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """For deadlines and durations: never goes back, is never stored or sent."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, by the machine."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment before the process began."""
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move: for tests and simulations."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        """The wall time it was set to."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """The sum of all advances."""
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError(
                f"time does not run backwards: {ms} ms (jump_wall moves the wall clock)"
            )
        self._wall_ms += ms
        self._monotonic_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Correct the wall clock, forwards or backwards, as NTP or an operator does."""
        self._wall_ms += ms
