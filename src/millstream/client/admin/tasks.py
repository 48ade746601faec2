"""Coroutines on the I/O thread: an operation of several steps reads like one.

Not asyncio: `start` runs a coroutine until it waits for a `Step`; the code that completes the step,
on the same thread, runs it on. Nothing here blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from millstream.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from millstream.client.futures import Waiter
    from millstream.client.runtime import ClientRuntime

T = TypeVar("T")


class Step(Generic[T]):
    """Something to await inside an operation; completed once."""

    __slots__ = ("_error", "_is_done", "_task", "_value")

    def __init__(self) -> None:
        self._is_done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._task: _Task[Any] | None = None

    def set_result(self, value: T) -> None:
        """Complete it; the one who waits goes on at once."""
        self._complete(value, None)

    def set_error(self, error: BaseException) -> None:
        """Complete it with an error, which is raised where it is awaited."""
        self._complete(None, error)

    def __await__(self) -> Generator[Step[Any], None, T]:
        if not self._is_done:
            yield self
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        self._is_done = True
        self._value, self._error = value, error
        task, self._task = self._task, None
        if task is not None:
            task.advance()

    def _wait(self, task: _Task[Any]) -> bool:
        """Have a task run on when it is complete; False if it is already."""
        if self._is_done:
            return False
        self._task = task
        return True


class _Task(Generic[T]):
    """A coroutine under way."""

    __slots__ = ("_coroutine", "_waiter")

    def __init__(self, coroutine: Coroutine[Step[Any], None, T], waiter: Waiter[T]) -> None:
        self._coroutine = coroutine
        self._waiter = waiter

    def advance(self) -> None:
        """Run to the next step that is not complete, or to the end."""
        try:
            while True:
                step = self._coroutine.send(None)
                if step._wait(self):  # The two are one mechanism.
                    return
        except StopIteration as stop:
            self._waiter.set_result(stop.value)
        except Exception as error:  # The operation's own; a fault of ours is the caller's too.
            self._waiter.set_error(error)


def start(
    runtime: ClientRuntime, coroutine: Coroutine[Any, Any, T], waiter: Waiter[T]
) -> Waiter[T]:
    """Run an operation on the I/O thread; the waiter has its result. From any thread."""
    task = _Task(coroutine, waiter)
    try:
        runtime.post(lambda _now_ms: task.advance())
    except ClientClosed:
        coroutine.close()
        raise
    return waiter
