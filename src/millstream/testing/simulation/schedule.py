"""Virtual time: what happens next in a simulated world, and when.

Everything in a simulation is an entry here. Entries of the same moment take place in an order that
the seed decides. Nothing waits: time is where the next entry is.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


_AT_ONE_MOMENT_MAX: Final = 100_000
"""So much happens at one moment only if something waits for time to pass, and lets none pass."""


class Schedule:
    """What is to happen, by the microsecond."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._entries: list[tuple[int, int, int, Callable[[], None]]] = []
        self._count = 0
        self.now_us = 0
        self.events = 0
        """How many entries took place."""

    def at(self, when_us: int, act: Callable[[], None]) -> None:
        """Let something happen then, and not before now."""
        self._count += 1
        tie = self._random.getrandbits(16)
        heapq.heappush(self._entries, (max(when_us, self.now_us), tie, self._count, act))

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self.at(self.now_us + delay_us, act)

    def run_until(self, when_us: int, is_over: Callable[[], bool] | None = None) -> bool:
        """Let everything happen up to a moment, or until something holds: whether it does."""
        entries = self._entries
        if is_over is not None and is_over():
            return True
        moment_us, last = self.now_us, self.events + _AT_ONE_MOMENT_MAX
        while entries and entries[0][0] <= when_us:
            self.now_us, _, _, act = heapq.heappop(entries)
            self.events += 1
            if self.now_us != moment_us:
                moment_us, last = self.now_us, self.events + _AT_ONE_MOMENT_MAX
            elif self.events > last:
                raise AssertionError(f"time stands still: {act} and others happen without end")
            act()
            if is_over is not None and is_over():
                return True
        self.now_us = max(self.now_us, when_us)
        return False
