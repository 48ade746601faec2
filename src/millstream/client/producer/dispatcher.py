"""The thread on which callbacks of a producer's users run.

Never the I/O thread: a callback may be slow, may wait, may send. The thread starts with the first
callback and ends with the producer. Callbacks run one after the other, in the order of submission.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger(__name__)


def call_safely(function: Callable[..., object], *arguments: Any) -> None:
    """Call code of a user; what it raises is logged and goes no further.

    SystemExit neither: it would end the thread, and others wait for their callbacks.
    """
    try:
        function(*arguments)
    except BaseException:
        log_failure(function)


def log_failure(function: Callable[..., object]) -> None:
    """Write down what a user's function has just raised."""
    _logger.exception("A callback of the producer raised: %r", function)


class DispatcherThread:
    """A queue of calls and the daemon thread that makes them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run it soon, after all that were submitted before. From any thread."""
        with self._changed:
            self._calls.append((function, arguments))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until everything submitted so far has run; not from a callback."""
        done = threading.Event()
        return not self.call_when_drained(done.set) or done.wait(timeout_s)

    def call_when_drained(self, function: Callable[[], object]) -> bool:
        """Call it when everything submitted so far has run; False if nobody need wait for that.

        Nothing was ever submitted then, or it is a callback that asks: it would wait for itself.
        """
        if self._thread is None or threading.current_thread() is self._thread:
            return False
        self.submit(function)
        return True

    def stop(self, timeout_s: float | None = None) -> None:
        """Run what was submitted, then end the thread; it may go on if that takes too long."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._calls and not self._is_stopping:
                    self._changed.wait()
                if not self._calls:
                    self._thread = None
                    return
                function, arguments = self._calls.popleft()
            call_safely(function, *arguments)
