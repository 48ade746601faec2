"""A thread with an event loop: results and errors come to whoever asked."""

from __future__ import annotations

import asyncio
import threading

import pytest

from millstream.testing.loop_thread import LoopThread


def test_functions_and_coroutines_run_on_the_thread_and_the_caller_gets_what_came_of_them() -> None:
    async def name() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    thread = LoopThread("mine")
    assert thread.run(name()) == "mine"
    assert thread.call(lambda: threading.current_thread().name) == "mine"

    thread.close()
    assert "mine" not in [each.name for each in threading.enumerate()]


def test_errors_are_raised_in_the_callers_thread() -> None:
    thread = LoopThread("mine")
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
    thread.close()


def test_tasks_that_are_left_end_with_the_thread() -> None:
    cancelled = threading.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def begin() -> None:
        tasks.append(asyncio.create_task(wait_for_ever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    thread = LoopThread("mine")
    thread.run(begin())
    thread.close()

    assert cancelled.is_set()
