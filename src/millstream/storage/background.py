"""Where work goes that would hold the owner of the logs up, and how its end comes back.

Whoever makes a `LogManager` hands in a `Background`: the broker one on its event loop, a tool one
on a queue, a test one that runs everything at once. Storage itself starts no thread that waits.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Work: TypeAlias = Callable[[], None]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Background:
    """The threads a log manager may use.

    asyncio:    Background(loop.call_soon_threadsafe, lambda _: ThreadPoolExecutor(2).submit)
    simulation: Background(events.append, lambda _: events.append, InlineExecutor)
    """

    post: Callable[[Work], object]
    """Runs something on the owner's thread, soon; may be called on any thread."""
    run_for: Callable[[str], Callable[[Work], object]]
    """Given a log directory, what runs something on a thread for it. Two threads each are enough:
    one for group commits, one for chores, so that a slow removal delays no acknowledgement."""
    make_pool: Callable[[int], Executor] = ThreadPoolExecutor
    """A pool of so many threads for loading and closing logs; it is shut down afterwards."""


class Chores:
    """The slow jobs of one directory that nobody waits for: one at a time, in order.

    A job that waits is replaced by a later one of the same name, so a stuck disk piles up nothing.
    """

    __slots__ = ("_is_busy", "_is_closed", "_on_error", "_pending", "_post", "_run")

    def __init__(
        self,
        *,
        run: Callable[[Work], object],
        post: Callable[[Work], object],
        on_error: Callable[[Exception], object],
    ) -> None:
        self._run = run
        self._post = post
        self._on_error = on_error
        self._pending: dict[str, Work] = {}
        self._is_busy = False
        self._is_closed = False

    def add(self, name: str, work: Work) -> None:
        """Do it on the directory's thread when those before it are done."""
        if not self._is_closed:
            self._pending[name] = work
            self._begin_next()

    def close(self) -> None:
        """Drop what waits; a job that has not begun yet does nothing when its turn comes."""
        self._is_closed = True
        self._pending.clear()

    def _begin_next(self) -> None:
        if self._is_busy or not self._pending:
            return
        name = next(iter(self._pending))
        work = self._pending.pop(name)
        self._is_busy = True
        self._run(lambda: self._perform(name, work))

    def _perform(self, name: str, work: Work) -> None:
        """On the directory's thread."""
        error: Exception | None = None
        try:
            if not self._is_closed:
                work()
        except Exception as caught:
            _logger.warning("%s failed: %s", name, caught)
            error = caught
        self._post(lambda: self._end(error))

    def _end(self, error: Exception | None) -> None:
        self._is_busy = False
        if error is not None:
            self._on_error(error)
        self._begin_next()
