"""Where a node's slow work goes, and how its end comes back to the event loop.

A few threads: two for each log directory (group commits and chores, as storage asks), one for the
metadata log, so that a decision of the controller never waits behind a compaction. Threads start
when they are first needed.
"""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from millstream.storage.background import Background

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")


class Workers:
    """The threads of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools: dict[str, Executor] = {}
        self._is_closed = False

    def background(self) -> Background:
        """What storage needs."""
        return Background(self.post, lambda directory: self._pool(f"logs {directory}", 2).submit)

    def post(self, act: Callable[[], None]) -> None:
        """Run something on the loop's thread soon; may be called on any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def submit(self, pool: str, work: Callable[[], None]) -> None:
        """Run something on a thread of a pool that has one."""
        self._pool(pool, 1).submit(work)

    def run(
        self,
        pool: str,
        work: Callable[[], T],
        done: Callable[[T | Exception], None],
    ) -> None:
        """Run `work` on a thread of a pool, then `done` on the loop's with what came of it."""

        def attempt() -> None:
            result: T | Exception
            try:
                result = work()
            except Exception as error:
                result = error
            self.post(lambda: done(result))

        if self._is_closed:
            attempt()
        else:
            self._pool(pool, 1).submit(attempt)

    def close(self) -> None:
        """Wait for what has begun; drop what has not."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()

    def _pool(self, name: str, threads: int) -> Executor:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = self._make_pool(name, threads)
        return pool

    def _make_pool(self, name: str, threads: int) -> Executor:
        """Threads, unless a simulation has something else."""
        return ThreadPoolExecutor(threads, thread_name_prefix=f"millstream {name}")
