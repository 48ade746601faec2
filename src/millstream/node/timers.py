"""One timer for every deadline of a node.

Each part has an `Alarm` and sets it to the next moment it cares about; the loop is asked to wake up
for the earliest only. An alarm that moves to a later moment costs nothing: the timer fires, finds
that nothing is due, and is set anew. Nothing here is periodic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from millstream.clock import Clock

_NEVER_MS: Final = 1 << 62


class Alarm:
    """The next deadline of one part of the node."""

    __slots__ = ("_fire", "_timers", "deadline_ms")

    def __init__(self, timers: Timers, fire: Callable[[], None]) -> None:
        self._timers = timers
        self._fire = fire
        self.deadline_ms = _NEVER_MS

    def set(self, deadline_ms: int | None) -> None:
        """Fire at this moment of the monotonic clock instead of any other; None: never."""
        self.deadline_ms = _NEVER_MS if deadline_ms is None else deadline_ms
        if self.deadline_ms < self._timers.armed_ms:
            self._timers.arm(self.deadline_ms)

    def advance(self, deadline_ms: int) -> None:
        """Fire at this moment at the latest."""
        if deadline_ms < self.deadline_ms:
            self.set(deadline_ms)

    def fire_if_due(self, now_ms: int) -> None:
        """Call the owner, who sets the alarm again if there is something more to wait for."""
        if self.deadline_ms <= now_ms:
            self.deadline_ms = _NEVER_MS
            self._fire()


class Timers:
    """All alarms of a node and the loop's timer for the earliest."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_error: Callable[[Exception], None],
    ) -> None:
        """`on_error` gets what an owner raises when its alarm fires; the others go on."""
        self._loop = loop
        self._clock = clock
        self._on_error = on_error
        self._alarms: list[Alarm] = []
        self._handle: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.armed_ms = _NEVER_MS
        """What the loop's timer is set to."""

    def alarm(self, fire: Callable[[], None]) -> Alarm:
        """An alarm for one owner."""
        alarm = Alarm(self, fire)
        self._alarms.append(alarm)
        return alarm

    def arm(self, deadline_ms: int) -> None:
        """Wake up for the earliest alarm. Alarms call it."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.armed_ms = deadline_ms
        if deadline_ms == _NEVER_MS or self._is_closed:
            return
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self.fire_due)

    def fire_due(self) -> None:
        """Fire what is due. The timer calls it; so does whoever moves a manual clock."""
        now_ms = self._clock.monotonic_ms()
        # So that alarms that are set meanwhile do not each touch the timer.
        self.armed_ms = -1
        try:
            for alarm in self._alarms:
                try:
                    alarm.fire_if_due(now_ms)
                except Exception as error:
                    self._on_error(error)
        finally:
            self.arm(min((alarm.deadline_ms for alarm in self._alarms), default=_NEVER_MS))

    def close(self) -> None:
        """Fire nothing more."""
        self._is_closed = True
        self.arm(_NEVER_MS)
