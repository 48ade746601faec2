"""A thread with an event loop of its own, for callers who have none.

`EmbeddedBroker` runs its node on one. What is asked of it runs on the loop's thread; the caller
waits, and gets the result or the exception where it asked.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class LoopThread:
    """One running event loop. It ends with `close`, and never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._started = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self._closed: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end."""
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def close(self) -> None:
        """End the loop and wait for the thread."""
        self.loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def _run(self) -> None:
        # The runner leaves nothing behind: tasks, generators and executor threads end with it.
        with asyncio.Runner() as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self.loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._closed.wait()
