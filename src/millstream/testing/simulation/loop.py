"""An asyncio event loop without a selector, a thread or a clock: the loop of one simulated process.

Its time is that of a `Schedule`, as a clock that is wrong by a little would show it. A loop can be
paused, be slow, and die: whatever it had to do is then never done, as with `kill -9`.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.testing.simulation.transport import SimTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context
    from typing import TypeVarTuple

    from millstream.testing.simulation.clock import SimClock
    from millstream.testing.simulation.schedule import Schedule
    from millstream.testing.simulation.sockets import SimListener, SimSocket

    Ts = TypeVarTuple("Ts")

SECOND_US: Final = 1_000_000
_CLOSES_MAX: Final = 20


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. `on_turn` is called after each of its turns."""

    def __init__(
        self,
        schedule: Schedule,
        clock: SimClock,
        *,
        on_turn: Callable[[], None] = lambda: None,
        on_error: Callable[[dict[str, Any]], None] = lambda context: None,
    ) -> None:
        """`on_error` gets what asyncio says about a callback that raised."""
        self._schedule = schedule
        self._clock = clock
        self._on_turn = on_turn
        self._on_error = on_error
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_turn_due = False
        self._is_turning = False
        self._is_dead = False
        self._busy_until_us = 0
        self.is_paused = False
        self.cost_us = 0
        """How long each callback keeps the process busy."""

    # What happens to the process.

    def pause(self) -> None:
        """Stand still, as with SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self._wake()

    def spend(self, us: int) -> None:
        """Be busy for a while with what is being done."""
        self._busy_until_us = max(self._busy_until_us, self._schedule.now_us) + us

    def die(self) -> None:
        """Do nothing any more. What waited is dropped without a word, as far as Python lets it."""
        self._is_dead = True
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self._tasks.clear()
        self._ready.clear()

    # What a loop does.

    def time(self) -> float:
        """See `AbstractEventLoop`."""
        return self._clock.now_us() / SECOND_US

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `AbstractEventLoop`."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._wake()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `AbstractEventLoop`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `AbstractEventLoop`."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        delay_us = self._clock.true_us(round(delay * SECOND_US))
        self._schedule.after(delay_us, partial(self._timer_due, handle))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `AbstractEventLoop`."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """See `AbstractEventLoop`."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """See `AbstractEventLoop`."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """See `AbstractEventLoop`: at a later moment, in this thread."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(0.001, work)
        return future

    def add_reader(self, fd: SimListener, callback: Callable[[], object], *args: Any) -> None:  # type: ignore[override]
        """See `AbstractEventLoop`: for the sockets that listen in a simulated network."""
        fd.watch(lambda: self.call_soon(callback, *args))

    def remove_reader(self, fd: SimListener) -> bool:  # type: ignore[override]
        """See `AbstractEventLoop`."""
        fd.watch(None)
        return True

    async def connect_accepted_socket(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        sock: SimSocket,
        **options: object,
    ) -> tuple[SimTransport, asyncio.BufferedProtocol]:
        """See `AbstractEventLoop`; there is no TLS."""
        protocol = protocol_factory()
        transport = SimTransport(self, sock, protocol)
        protocol.connection_made(transport)
        transport.begin()
        return transport, protocol

    def get_debug(self) -> bool:
        """See `AbstractEventLoop`."""
        return False

    def is_running(self) -> bool:
        """See `AbstractEventLoop`."""
        return self._is_turning

    def is_closed(self) -> bool:
        """See `AbstractEventLoop`."""
        return self._is_dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `AbstractEventLoop`. What a collector of garbage finds is no event of this world."""
        if "handle" in context and not self._is_dead:
            self._on_error(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The entry stays, and does nothing when its time comes."""

    # Turns.

    def _wake(self) -> None:
        if self._is_turn_due or self._is_dead or self.is_paused or self._is_turning:
            return
        if self._ready:
            self._is_turn_due = True
            self._schedule.at(self._busy_until_us, self._turn_due)

    def _timer_due(self, handle: asyncio.TimerHandle) -> None:
        if handle.cancelled() or self._is_dead:
            return
        self._ready.append(handle)
        is_free = not self.is_paused and self._busy_until_us <= self._schedule.now_us
        if is_free and not self._is_turn_due:
            self._turn()
        else:
            self._wake()

    def _turn_due(self) -> None:
        self._is_turn_due = False
        if self._is_dead or self.is_paused:
            return
        if self._busy_until_us > self._schedule.now_us:
            self._wake()
        else:
            self._turn()

    def _turn(self) -> None:
        """Run what is ready, as one turn of a loop does."""
        ready = self._ready
        before = events._get_running_loop()
        events._set_running_loop(self)
        self._is_turning = True
        try:
            for _ in range(len(ready)):
                if not ready:
                    break  # It died.
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                    if self.cost_us:
                        self.spend(self.cost_us)
        finally:
            self._is_turning = False
            events._set_running_loop(before)
        self._on_turn()
        self._wake()


def _close(coroutine: Any) -> None:
    """End a coroutine where it is; what it would do at its end it begins and does not finish."""
    for _ in range(_CLOSES_MAX):
        chain = []
        awaited = coroutine
        while awaited is not None and hasattr(awaited, "cr_await"):
            chain.append(awaited)
            awaited = awaited.cr_await
        try:
            for each in reversed(chain):
                each.close()
        except Exception:  # It waits for something else now: that goes first.
            continue
        return
