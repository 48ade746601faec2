"""A load from start to summary: Ctrl-C, faults, progress."""

from __future__ import annotations

import os
import signal
import threading
from itertools import count
from typing import TYPE_CHECKING

import pytest

from millstream.cli.perf_meter import Latencies, Meter, Window
from millstream.cli.perf_run import first_interrupt, latency_line, run_load, speed_line
from millstream.errors import NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000


class FakeLoad:
    """Ten records a turn, for so many turns."""

    def __init__(self, turns: int, on_turn: Callable[[int], object] = id) -> None:
        self.meter = Meter()
        self._turns = turns
        self._turn = 0
        self._on_turn = on_turn
        self.share: float | None = None

    def turn(self) -> bool:
        self._turn += 1
        self._on_turn(self._turn)
        self.meter.add(10, 1000)
        self.meter.time(2 * MS, 10)
        return self._turn < self._turns

    def end(self) -> None:
        self._turns = self._turn + 1  # One more, for what is still on its way.

    def progress(self) -> float | None:
        return self.share


def ticks_of(step_ns: int) -> Callable[[], int]:
    numbers = count()
    return lambda: next(numbers) * step_ns


def test_a_load_runs_until_it_is_done() -> None:
    outcome = run_load(FakeLoad(5), ticks_of(500 * MS), is_shown=False)

    facts = outcome.facts()
    assert outcome.error is None
    assert (facts["records"], facts["bytes"]) == (50, 5000)
    assert (facts["seconds"], facts["records_per_second"]) == (0.5, 100)
    assert facts["latency_ms"]["p50"] == pytest.approx(2, rel=1 / 64)
    assert facts["interrupted"] is False


def test_the_first_interrupt_lets_a_load_end_in_order() -> None:
    load = FakeLoad(1000, lambda turn: os.kill(os.getpid(), signal.SIGINT) if turn == 3 else None)

    outcome = run_load(load, ticks_of(1), is_shown=False)

    assert outcome.is_interrupted
    assert outcome.meter.records == 40


def test_the_second_interrupt_is_as_ever() -> None:
    with first_interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.is_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread_a_load_runs_as_well() -> None:
    outcomes = []
    thread = threading.Thread(
        target=lambda: outcomes.append(run_load(FakeLoad(2), ticks_of(1), is_shown=False))
    )

    thread.start()
    thread.join()

    assert outcomes[0].meter.records == 20


def test_a_fault_ends_a_load_and_keeps_what_was_done() -> None:
    def fail(turn: int) -> None:
        if turn == 3:
            raise NotLeaderOrFollower("moved")

    outcome = run_load(FakeLoad(10, fail), ticks_of(1), is_shown=False)

    assert isinstance(outcome.error, NotLeaderOrFollower)
    assert outcome.meter.records == 20


@pytest.mark.parametrize("share", [None, 0.25])
def test_progress_is_on_stderr(capsys: pytest.CaptureFixture[str], share: float | None) -> None:
    load = FakeLoad(20)
    load.share = share

    run_load(load, ticks_of(300 * MS), is_shown=True)

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "records/s" in printed.err
    assert ("25%" in printed.err) is (share is not None)


def test_a_load_that_ended_at_once_has_no_rate_and_no_latency() -> None:
    load = FakeLoad(0)
    load.turn = lambda: False  # type: ignore[method-assign]  # nothing to do at all

    facts = run_load(load, lambda: 0, is_shown=None).facts()

    assert facts["records_per_second"] == 0
    assert facts["latency_ms"] is None


def test_lines_say_how_fast_it_is() -> None:
    latencies = Latencies()
    latencies.add(2 * MS)
    latencies.add(1500 * MS)

    assert speed_line(Window(1000, 2_000_000, Latencies()), 0.5) == "2,000 records/s  4.0 MB/s"
    assert "p50 2.0" in speed_line(Window(1, 1, latencies), 1)
    assert latency_line(latencies).endswith("max 1,500 ms")
    assert latency_line(Latencies()) == "-"
