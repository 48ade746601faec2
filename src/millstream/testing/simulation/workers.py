"""Worker threads that are none: the work is done in this thread, at a later virtual moment.

How much later comes from the seed, and from how slow the disk is. Pools have as many jobs under
way as they would have threads, so that work is reordered exactly as threads could reorder it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from millstream.node.workers import Workers
from millstream.storage.background import Background

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class InlineExecutor(Executor):
    """Does everything at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SimExecutor(Executor):
    """A pool of so many threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, threads: int, latency_us: Callable[[], int]
    ) -> None:
        self._loop = loop
        self._free = threads
        self._latency_us = latency_us
        self._waiting: deque[Callable[[], None]] = deque()
        self._begun: dict[int, Callable[[], None]] = {}
        self._count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._waiting.append(work)
        self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor`: what has begun is done now."""
        if cancel_futures:
            self._waiting.clear()
        while self._begun:
            self._begun.pop(next(iter(self._begun)))()

    def _begin(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._count += 1
            self._begun[self._count] = self._waiting.popleft()
            self._loop.call_later(self._latency_us() / 1_000_000, self._end, self._count)

    def _end(self, number: int) -> None:
        work = self._begun.pop(number, None)
        self._free += 1
        if work is not None:
            work()
        self._begin()


class SimWorkers(Workers):
    """The workers of one simulated process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency_us: Callable[[], int]) -> None:
        super().__init__(loop)
        self._latency_us = latency_us

    def background(self) -> Background:
        """See `Workers`."""
        run_for = super().background().run_for
        return Background(self.post, run_for, lambda threads: InlineExecutor())

    def _make_pool(self, name: str, threads: int) -> SimExecutor:
        return SimExecutor(self._loop, threads, self._latency_us)
