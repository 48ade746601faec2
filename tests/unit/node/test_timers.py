"""One timer for all deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.node.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable


def do_nothing() -> None:
    pass


class Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop that only remembers what it was asked to do."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Handle]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        handle = Handle()
        self.timers.append((delay, handle))
        return handle

    @property
    def delays(self) -> list[float]:
        return [delay for delay, handle in self.timers if not handle.is_cancelled]


class Rig:
    def __init__(self) -> None:
        self.loop = Loop()
        self.clock = ManualClock()
        self.errors: list[Exception] = []
        self.timers = Timers(cast("Any", self.loop), self.clock, self.errors.append)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_loop_has_one_timer_for_the_earliest_alarm(rig: Rig) -> None:
    first, second = rig.timers.alarm(do_nothing), rig.timers.alarm(do_nothing)

    first.set(500)
    second.set(200)
    first.set(300)

    assert rig.loop.delays == [0.2]


def test_a_later_deadline_does_not_touch_the_timer(rig: Rig) -> None:
    alarm = rig.timers.alarm(do_nothing)
    alarm.set(100)

    for deadline_ms in range(200, 300):
        alarm.set(deadline_ms)

    assert len(rig.loop.timers) == 1


def test_alarms_fire_once_when_they_are_due(rig: Rig) -> None:
    fired: list[str] = []
    early = rig.timers.alarm(lambda: fired.append("early"))
    late = rig.timers.alarm(lambda: fired.append("late"))
    early.set(100)
    late.set(300)

    rig.clock.advance(100)
    rig.timers.fire_due()
    rig.timers.fire_due()

    assert fired == ["early"]
    assert rig.loop.delays[-1] == pytest.approx(0.2)


def test_an_alarm_that_sets_itself_again_is_waited_for(rig: Rig) -> None:
    alarm = rig.timers.alarm(lambda: alarm.set(rig.clock.monotonic_ms() + 50))
    alarm.set(10)

    rig.clock.advance(10)
    rig.timers.fire_due()

    assert rig.timers.armed_ms == 60


def test_advance_only_moves_an_alarm_forward(rig: Rig) -> None:
    alarm = rig.timers.alarm(do_nothing)
    alarm.advance(100)
    alarm.advance(200)
    assert alarm.deadline_ms == 100
    alarm.advance(50)
    assert alarm.deadline_ms == 50


def test_an_owner_that_raises_keeps_no_other_from_its_turn(rig: Rig) -> None:
    fired: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    rig.timers.alarm(fail).set(1)
    rig.timers.alarm(lambda: fired.append("other")).set(1)
    rig.clock.advance(1)

    rig.timers.fire_due()

    assert fired == ["other"]
    assert [str(error) for error in rig.errors] == ["broken"]


def test_without_alarms_there_is_no_timer(rig: Rig) -> None:
    alarm = rig.timers.alarm(do_nothing)
    alarm.set(100)
    alarm.set(None)
    rig.clock.advance(100)

    rig.timers.fire_due()

    assert rig.loop.timers[0][1].is_cancelled
    assert rig.loop.delays == []


def test_closed_timers_arm_nothing(rig: Rig) -> None:
    alarm = rig.timers.alarm(do_nothing)
    rig.timers.close()

    alarm.set(100)

    assert rig.loop.delays == []
