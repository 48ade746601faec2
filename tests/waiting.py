"""How tests wait: for an event, never for a time. The only module of the tests that sleeps.

Most events announce themselves: a future, a condition, a line of a log. `until` and `until_async`
look again and again at what does not; their limit is for failing alone. `once_blocked` disturbs a
thread that waits itself, at the moment when it does. `let_time_pass` is for the few tests
of what must not happen meanwhile; `tests/tidy/test_waiting.py` lists their files with the reasons.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_SECONDS = 60.0
LOOK_SECONDS = 0.005

_clock = SystemClock()


def until(
    holds: Callable[[], object],
    what: Callable[[], str] = lambda: "it did not come to that",
    *,
    limit_seconds: float = LIMIT_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Return when `holds` does; fail with the words of `what` if it does not in the end."""
    deadline_ms = _clock.monotonic_ms() + round(limit_seconds * 1000)
    while not holds():
        assert _clock.monotonic_ms() < deadline_ms, what()
        time.sleep(look_seconds)


async def until_async(holds: Callable[[], object], limit_seconds: float = LIMIT_SECONDS) -> None:
    """The same while the event loop goes on."""
    deadline_ms = _clock.monotonic_ms() + round(limit_seconds * 1000)
    while not holds():
        assert _clock.monotonic_ms() < deadline_ms, "it did not come to that"
        await asyncio.sleep(LOOK_SECONDS)


def let_time_pass(seconds: float) -> None:
    """Do nothing: for tests that nothing happens, where the time itself is the event."""
    time.sleep(seconds)


@contextmanager
def once_blocked(
    act: Callable[[], object], waiting: Callable[..., object] = threading.Condition.wait
) -> Iterator[None]:
    """Act from another thread when this one waits in the block, in the function given.

    A signal that comes just before a lock's wait is not seen before its end, so being in the
    function is not enough: the thread has to sleep there.
    """
    caller = threading.current_thread()

    def disturb() -> None:
        until(lambda: _is_in(caller, waiting) and _sleeps(caller))
        act()

    thread = threading.Thread(target=disturb, name="once-blocked")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _is_in(thread: threading.Thread, function: Callable[..., object]) -> bool:
    """Whether a thread is in a function; waiting for a thread that starts is over in a moment."""
    frame, codes = sys._current_frames().get(thread.ident or 0), set()
    while frame is not None:
        codes.add(frame.f_code)
        frame = frame.f_back
    return function.__code__ in codes and threading.Thread.start.__code__ not in codes


def _sleeps(thread: threading.Thread) -> bool:
    """Whether a thread does nothing at all: one that waits for the GIL looks for it every 5 ms."""
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    if not status.exists():
        return True

    def seen() -> list[str]:
        words = ("State:", "voluntary_ctxt_switches:")
        return [line for line in status.read_text().splitlines() if line.startswith(words)]

    before = seen()
    time.sleep(4 * sys.getswitchinterval())
    return "S (sleeping)" in before[0] and seen() == before
