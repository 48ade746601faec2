"""Results that the I/O thread has later, for callers that block and for callers that await.

The I/O thread completes a `Waiter` exactly once, unless it was abandoned before; anybody may wait
for it, in a thread (Ctrl-C ends the wait) or in an event loop.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from millstream.errors import ClientError, OperationTimeout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

T = TypeVar("T")


class Waiter(Generic[T]):
    """A result, or an error, that comes later. Safe to use from any thread."""

    __slots__ = ("_callbacks", "_error", "_is_done", "_lock", "_signal", "_value", "what")

    def __init__(self, what: str = "the operation") -> None:
        """`what` is named when waiting takes too long."""
        self.what = what
        self._lock = threading.Lock()
        self._signal: threading.Event | None = None
        self._callbacks: list[Callable[[Waiter[T]], None]] = []
        self._is_done = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def set_result(self, value: T) -> None:
        """Complete it. Only the first completion counts."""
        self._complete(value, None)

    def set_error(self, error: BaseException) -> None:
        """Complete it with an error, which is raised where it is waited for."""
        self._complete(None, error)

    def abandon(self) -> None:
        """Nobody waits any more: the code that would complete it may forget it."""
        self._complete(None, OperationTimeout(f"{self.what}: nobody waits for it any more"))

    def done(self) -> bool:
        """Whether it is complete."""
        return self._is_done

    def exception(self) -> BaseException | None:
        """The error it was completed with; None if it has none, or not yet."""
        return self._error

    def result(self, timeout_s: float | None = None) -> T:
        """Block until it is complete; OperationTimeout if that takes longer than `timeout_s`."""
        if not self._is_done and not self._wait(timeout_s):
            raise OperationTimeout(f"{self.what}: no result within {timeout_s:g} s")
        return self._outcome()

    def add_done_callback(self, callback: Callable[[Waiter[T]], None]) -> None:
        """Call it when complete, on the thread that completes it; at once if it is already."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback(self)

    def __await__(self) -> Generator[object, None, T]:
        if not self._is_done:
            import asyncio  # A caller that awaits has it; one that blocks need not pay for it.

            loop = asyncio.get_running_loop()
            arrived: asyncio.Future[None] = loop.create_future()

            def wake(_: object) -> None:
                # The loop may be gone: then nobody waits any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_resolve, arrived)

            self.add_done_callback(wake)
            yield from arrived
        return self._outcome()

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            if self._is_done:
                return
            self._value, self._error = value, error
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
            if self._signal is not None:
                self._signal.set()
        for callback in callbacks:
            callback(self)

    def _wait(self, timeout_s: float | None) -> bool:
        with self._lock:
            if self._is_done:
                return True
            if self._signal is None:
                self._signal = threading.Event()
            signal = self._signal
        return signal.wait(timeout_s)

    def _outcome(self) -> T:
        if self._error is not None:
            # One traceback per raise: the same error may be raised in several places.
            raise self._error.with_traceback(None)
        return cast("T", self._value)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def failed(error: ClientError, what: str = "the operation") -> Waiter[T]:
    """A waiter that has failed already."""
    waiter: Waiter[T] = Waiter(what)
    waiter.set_error(error)
    return waiter
