"""`Mailbox`: how the I/O thread tells the application something, and how the application waits.

`FetchBuffer` is a mailbox with records in it. Blocking callers wait on the condition, event loops
have a callback called. Nothing slow and nothing of the user's runs under the lock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.errors import MillstreamError


class Mailbox:
    """Events for the application, and the ways to wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._events: deque[RebalanceEvent] = deque()
        self._errors: deque[MillstreamError] = deque()
        self._is_woken = False
        self._is_notified = False
        self._on_change: Callable[[], None] | None = None
        self._end: MillstreamError | None = None

    # ---- the application's side ----

    def next_event(self) -> RebalanceEvent | None:
        """A change of the assignment that the application has to hear of."""
        return self._events.popleft() if self._events else None

    def next_error(self) -> MillstreamError | None:
        """What the group has failed with."""
        return self._errors.popleft() if self._errors else None

    def wait(self, is_reached: Callable[[], bool], timeout_s: float | None) -> None:
        """Block until something changes, unless it is as wanted already.

        Raises why nothing will change any more, if that is so.
        """
        with self._lock:
            if not self._is_notified and not is_reached():
                self._raise_end()
                self._condition.wait(timeout_s)
            self._is_notified = False

    def call_on_change(
        self, is_reached: Callable[[], bool], callback: Callable[[], None] | None
    ) -> bool:
        """Have a callback called once, from any thread; False if it is as wanted already."""
        with self._lock:
            if callback is not None and (self._is_notified or is_reached()):
                self._is_notified = False
                return False
            if callback is not None:
                self._raise_end()
            self._on_change = callback
            return True

    def _raise_end(self) -> None:
        if self._end is not None:
            raise self._end.with_traceback(None)

    def has_event(self) -> bool:
        """Whether the assignment changes. To be asked under the lock."""
        return bool(self._events)

    def has_news(self) -> bool:
        """Whether there is something to hear, records aside. To be asked under the lock."""
        return bool(self._events or self._errors or self._is_woken)

    def notify(self) -> None:
        """Have a caller that waits look again. From any thread."""
        with self._lock:
            self._is_notified = True
        self._notify()

    def wake(self) -> None:
        """End the wait of a poll, this one or the next. From any thread."""
        with self._lock:
            self._is_woken = True
        self._notify()

    def take_wake(self) -> bool:
        """Whether somebody called `wake` since the last time this was asked."""
        with self._lock:
            is_woken, self._is_woken = self._is_woken, False
            return is_woken

    def _notify(self) -> None:
        with self._lock:
            self._condition.notify_all()
            callback, self._on_change = self._on_change, None
        if callback is not None:
            callback()

    # ---- the I/O thread's side ----

    def put_event(self, event: RebalanceEvent) -> None:
        """Tell the application that the assignment changes."""
        self._events.append(event)
        self._notify()

    def put_error(self, error: MillstreamError) -> None:
        """Tell the application that the group has failed."""
        self._errors.append(error)
        self._notify()

    def end(self, error: MillstreamError) -> None:
        """Nothing more will come: a caller that would wait for it gets this error."""
        self._end = error
        self._notify()
