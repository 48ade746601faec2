"""Results for callers that block and for callers that await."""

from __future__ import annotations

import asyncio
import signal
import threading
import traceback

import pytest

from millstream.client.futures import Waiter, failed
from millstream.errors import ClientClosed, OperationTimeout
from tests.waiting import once_blocked


def test_a_result_is_there_for_everybody() -> None:
    waiter: Waiter[int] = Waiter()
    assert not waiter.done()
    waiter.set_result(7)
    waiter.set_result(8)
    waiter.set_error(ValueError())

    assert waiter.done()
    assert waiter.result() == waiter.result(0) == 7
    assert waiter.exception() is None


def test_an_error_is_raised_where_it_is_waited_for_each_time_with_a_fresh_traceback() -> None:
    waiter: Waiter[int] = failed(ClientClosed("gone"))

    depths = []
    for _ in range(3):
        with pytest.raises(ClientClosed) as caught:
            waiter.result()
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))

    assert len(set(depths)) == 1
    assert isinstance(waiter.exception(), ClientClosed)


def test_waiting_too_long_says_what_for() -> None:
    waiter: Waiter[int] = Waiter("deleting orders")

    with pytest.raises(OperationTimeout, match=r"deleting orders: no result within 0.01 s"):
        waiter.result(0.01)


def test_who_gives_up_tells_whoever_would_complete_it() -> None:
    waiter: Waiter[int] = Waiter("deleting orders")

    waiter.abandon()
    waiter.set_result(7)

    assert waiter.done()
    with pytest.raises(OperationTimeout, match="deleting orders: nobody waits for it any more"):
        waiter.result()


def test_another_thread_completes_it() -> None:
    waiter: Waiter[str] = Waiter()
    thread = threading.Thread(target=waiter.set_result, args=("done",))

    thread.start()

    assert waiter.result(10) == "done"
    thread.join()


def test_callbacks_run_once_before_or_after() -> None:
    waiter: Waiter[int] = Waiter()
    seen: list[int] = []
    waiter.add_done_callback(lambda done: seen.append(done.result()))
    assert not seen
    waiter.set_result(1)
    waiter.add_done_callback(lambda done: seen.append(done.result() + 1))

    assert seen == [1, 2]


def test_it_can_be_awaited() -> None:
    async def wait() -> tuple[str, str]:
        waiter: Waiter[str] = Waiter()
        thread = threading.Thread(target=waiter.set_result, args=("later",))
        asyncio.get_running_loop().call_soon(thread.start)
        first = await waiter
        thread.join()
        return first, await waiter

    assert asyncio.run(wait()) == ("later", "later")


def test_an_error_is_raised_in_the_awaiting_task() -> None:
    async def wait() -> None:
        waiter: Waiter[None] = Waiter()
        asyncio.get_running_loop().call_soon(waiter.set_error, ClientClosed("gone"))
        await waiter

    with pytest.raises(ClientClosed):
        asyncio.run(wait())


def test_a_task_that_gives_up_leaves_the_result_for_others() -> None:
    async def wait() -> str:
        waiter: Waiter[str] = Waiter()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await waiter
        waiter.set_result("late")
        return await waiter

    assert asyncio.run(wait()) == "late"


def test_a_loop_that_is_gone_is_no_concern() -> None:
    waiter: Waiter[None] = Waiter()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await waiter

    asyncio.run(give_up())

    waiter.set_result(None)
    assert waiter.done()


def test_ctrl_c_ends_the_wait() -> None:
    waiter: Waiter[None] = Waiter()
    main = threading.main_thread().ident
    assert main is not None

    with (
        once_blocked(lambda: signal.pthread_kill(main, signal.SIGINT)),
        pytest.raises(KeyboardInterrupt),
    ):
        waiter.result(60)
