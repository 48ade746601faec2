"""What a consumer's call waits for, apart from how it waits.

A call that may wait is written once, as a generator of steps (`ConsumerSession`); `Consumer`
performs them with `perform`, `AsyncConsumer` with `perform_async`. So both do the same in the same
order, and a simulator can perform them in its own time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from millstream._accel.codec.faults import bad_value
from millstream.client.serialization.lookups import LOOKUPS_MAX, LookupNeeded, without_lookups
from millstream.errors import RecordNotReadable

if TYPE_CHECKING:
    from millstream.client.futures import Waiter

T = TypeVar("T")


class Changing(Protocol):
    """What the I/O thread changes and the application waits for: a `FetchBuffer`, for one."""

    def wait(self, is_reached: Callable[[], bool], timeout_s: float | None) -> None:
        """Block until something changes, unless it is as wanted already."""
        ...

    def call_on_change(
        self, is_reached: Callable[[], bool], callback: Callable[[], None] | None
    ) -> bool:
        """Have a callback called once, from any thread; False if it is as wanted already."""
        ...


class AwaitResult(NamedTuple):
    """Wait for the I/O thread; the answer is the result."""

    waiter: Waiter[Any]
    timeout_s: float | None


class AwaitChange(NamedTuple):
    """Wait until something of the buffer is as wanted, or for so long."""

    is_reached: Callable[[], bool]
    """Asked under the buffer's lock."""
    timeout_s: float | None


class Invoke(NamedTuple):
    """Run something of the user's; the answer is what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class RunApart(NamedTuple):
    """Run something that may block for long: not in an event loop. The answer is its result."""

    function: Callable[[], Any]


Step: TypeAlias = AwaitResult | AwaitChange | Invoke | RunApart
Steps: TypeAlias = Generator[Step, Any, T]


def with_lookups(take: Callable[[], T]) -> Steps[T]:
    """What `take` gives; schemas that its deserializers must ask for are asked for apart.

    `take` leaves a record that it could not read where it is, so it is simply called again.
    """
    for _ in range(LOOKUPS_MAX):
        try:
            return without_lookups(take)
        except RecordNotReadable as error:
            # No error is kept here: its traceback has this frame, and what was fetched besides.
            if not isinstance(error.__cause__, LookupNeeded):
                raise
            look_up = error.__cause__.look_up
            where = error.topic, error.partition, error.offset
        if look_up is None:
            break
        try:
            yield RunApart(look_up)
        except Exception as failure:
            raise bad_value("content", *where, failure) from failure
    return take()


def perform(steps: Steps[T], buffer: Changing | None = None) -> T:
    """Perform the steps on this thread, blocking where they wait; changes are the buffer's."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            if isinstance(step, AwaitChange):
                assert buffer is not None
                buffer.wait(step.is_reached, step.timeout_s)
            elif isinstance(step, AwaitResult):
                answer = step.waiter.result(step.timeout_s)
            elif isinstance(step, RunApart):
                answer = step.function()
            else:
                answer = step.function(*step.arguments)
        except BaseException as raised:
            error = raised


async def perform_async(steps: Steps[T], buffer: Changing | None = None) -> T:
    """Perform the steps in an event loop; what the user gave may be a coroutine function."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer, error = None, None
        try:
            if isinstance(step, AwaitChange):
                assert buffer is not None
                await _wait_for_change(step, buffer)
            elif isinstance(step, AwaitResult):
                answer = await _wait_for_result(step)
            elif isinstance(step, RunApart):
                answer = await asyncio.to_thread(step.function)
            else:
                answer = step.function(*step.arguments)
                if inspect.isawaitable(answer):
                    answer = await answer
        except BaseException as raised:
            error = raised


async def _wait_for_change(step: AwaitChange, buffer: Changing) -> None:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake() -> None:
        # The loop may be gone: then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(changed.set)

    if not buffer.call_on_change(step.is_reached, wake):
        return
    try:
        async with asyncio.timeout(step.timeout_s):
            await changed.wait()
    except TimeoutError:
        pass
    finally:
        buffer.call_on_change(step.is_reached, None)


async def _wait_for_result(step: AwaitResult) -> Any:
    try:
        async with asyncio.timeout(step.timeout_s):
            return await step.waiter
    except TimeoutError:
        # It says what was waited for.
        return step.waiter.result(0)
