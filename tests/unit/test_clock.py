"""Time that is handed in."""

from __future__ import annotations

import pytest

from millstream.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(wall_ms=1_000)

    clock.advance(50)

    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_050, 50)


def test_a_corrected_wall_clock_leaves_durations_alone() -> None:
    clock = ManualClock(wall_ms=1_000)

    clock.jump_wall(-400)

    assert (clock.wall_ms(), clock.monotonic_ms()) == (600, 0)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


def test_the_system_clock_tells_the_machines_time() -> None:
    clock = SystemClock()

    first = clock.monotonic_ms()

    assert clock.monotonic_ms() >= first
    assert clock.wall_ms() > 1_700_000_000_000
