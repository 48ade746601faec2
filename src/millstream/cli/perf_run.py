"""A load from its first request to its summary: progress on the way, Ctrl-C, and what it all was.

`perf` hands over a load and prints what comes back. Progress goes to stderr, and only where
somebody can see it; stdout has the summary alone.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.progress import Progress

    from millstream.cli.perf_meter import Latencies, Meter, Window

_SHOW_NS: Final = 500_000_000
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_STEPS: Final = 1000
"""Of the progress bar."""


class Load(Protocol):
    """What can be run."""

    meter: Meter

    def turn(self) -> bool:
        """Do a bit; False when there is nothing more to do."""
        ...

    def end(self) -> None:
        """Begin nothing new."""
        ...

    def progress(self) -> float | None:
        """From 0 to 1; None if nobody knows."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a load went."""

    meter: Meter
    seconds: float
    is_interrupted: bool = False
    error: MillstreamError | None = None
    """Why it ended early."""

    def facts(self) -> dict[str, Any]:
        """All the numbers, for programs."""
        meter, seconds = self.meter, max(self.seconds, 1e-9)
        is_weighed = bool(meter.byte_count) or not meter.records  # Columns are only counted.
        return {
            "records": meter.records,
            "bytes": meter.byte_count if is_weighed else None,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(meter.records / seconds, 1),
            "mb_per_second": round(meter.byte_count / seconds / 1e6, 3) if is_weighed else None,
            "latency_ms": _latency_facts(meter.latencies),
            "interrupted": self.is_interrupted,
        }


class Interrupt:
    """Whether somebody pressed Ctrl-C."""

    def __init__(self) -> None:
        self.is_requested = False


@contextmanager
def first_interrupt() -> Iterator[Interrupt]:
    """Take note of the first Ctrl-C, so that a request is not cut in two; the second is as ever."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # Only the main thread is told of signals.
        return
    before = signal.getsignal(signal.SIGINT)

    def take_note(_number: int, _frame: FrameType | None) -> None:
        interrupt.is_requested = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, take_note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def run_load(load: Load, ticks: Callable[[], int], *, is_shown: bool | None = None) -> Outcome:
    """Turn a load until it is done, interrupted or at fault; None shows progress on a terminal."""
    error: MillstreamError | None = None
    started_ns = ticks()
    shown = sys.stderr.isatty() if is_shown is None else is_shown
    with (
        first_interrupt() as interrupt,
        progress_shown(load, ticks) if shown else _silent() as show,
    ):
        try:
            while load.turn():
                show()
                if interrupt.is_requested:
                    load.end()
        except MillstreamError as raised:
            error = raised
        seconds = (ticks() - started_ns) / 1e9
    return Outcome(load.meter, seconds, interrupt.is_requested, error)


@contextmanager
def _silent() -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def progress_shown(load: Load, ticks: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A line on stderr that moves when it is called, twice a second at most."""
    with _progress_line() as line:
        task = line.add_task("", total=None, now="starting")
        last_ns = ticks()

        def show() -> None:
            nonlocal last_ns
            now_ns = ticks()
            if now_ns - last_ns < _SHOW_NS:
                return
            now = speed_line(load.meter.take_window(), (now_ns - last_ns) / 1e9)
            last_ns = now_ns
            if (share := load.progress()) is None:
                line.update(task, now=now)
            else:
                line.update(task, total=_STEPS, completed=int(share * _STEPS), now=now)
            line.refresh()

        yield show


def _progress_line() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    return Progress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[now]}", markup=False),
        console=Console(stderr=True, force_terminal=True),
        auto_refresh=False,
        transient=True,
    )


def speed_line(window: Window, seconds: float) -> str:
    """The last half second in one line."""
    parts = [
        f"{window.records / seconds:,.0f} records/s",
        f"{window.byte_count / seconds / 1e6:,.1f} MB/s",
    ]
    if window.latencies.count:
        parts += [
            f"{name} {_ms(window.latencies.percentile_ns(_SHARES[name]))}"
            for name in ("p50", "p95", "p99")
        ]
    return "  ".join(parts)


def latency_line(latencies: Latencies) -> str:
    """All percentiles in one line; `-` if nothing was measured."""
    if not latencies.count:
        return "-"
    parts = [f"{name} {_ms(latencies.percentile_ns(share))}" for name, share in _SHARES.items()]
    return ", ".join([*parts, f"max {_ms(latencies.max_ns)}"])


def _ms(latency_ns: float) -> str:
    ms = latency_ns / 1e6
    return f"{ms:.2f} ms" if ms < 10 else f"{ms:,.0f} ms"


def _latency_facts(latencies: Latencies) -> dict[str, float] | None:
    if not latencies.count:
        return None
    facts = {name: latencies.percentile_ns(share) / 1e6 for name, share in _SHARES.items()}
    facts |= {"mean": latencies.mean_ns / 1e6, "max": latencies.max_ns / 1e6}
    return {name: round(value, 4) for name, value in facts.items()}
