"""The order of things: what happens when, by a clock that only goes as far as it must."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from millstream.clock import ManualClock
from tests.unit.storage.batches import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Callable


class Schedule:
    """Events to come. Those of the same moment happen in the order in which they were made."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.monotonic_ms()

    def after(self, ms: int, action: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heappush(self._events, (self.now_ms + ms, self._count, action))

    @property
    def next_ms(self) -> int | None:
        """When the next event is; None if there is none."""
        return self._events[0][0] if self._events else None

    def advance_to(self, at_ms: int) -> None:
        """Let time pass, and nothing happen."""
        self.clock.advance(max(0, at_ms - self.now_ms))

    def step(self) -> None:
        """Let the next event happen."""
        at_ms, _, action = heappop(self._events)
        self.advance_to(at_ms)
        action()
