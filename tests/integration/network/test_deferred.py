"""Answers that the fast path gives later: in order with all others of their connection."""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.clock import SystemClock
from millstream.network.server import (
    PENDING,
    Outcome,
    Request,
    Response,
    SocketServer,
    SocketServerConfig,
)
from millstream.network.server.connection_state import FullPath
from tests.integration.network.harness import SERVED, Client, Served, answer, frame
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.network.conftest import Run

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

HANDLERS = Path(__file__).with_name("fake_handlers.pyx")
SOURCES = Path(__file__).parents[3] / "src"


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The handlers for tests, compiled against the kernel's own `.pxd`."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    directory = tmp_path_factory.mktemp("handlers")
    extension = Extension(
        "fake_handlers", [str(HANDLERS)], include_dirs=[str(SOURCES / "millstream/_accel")]
    )
    built = cythonize(  # type: ignore[no-untyped-call]  # Cython has no types
        [extension], include_path=[str(SOURCES)], build_dir=str(directory), quiet=True
    )
    distribution = Distribution({"ext_modules": built})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = command.build_temp = str(directory)
    command.ensure_finalized()
    command.run()
    (library,) = directory.glob("fake_handlers.*.so")
    spec = importlib.util.spec_from_file_location("fake_handlers", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Full:
    """The full path: answers with the body in capitals, later if it is told to wait."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []

    def __call__(self, request: Request) -> Response | Outcome:
        if bytes(request.buffer[request.body : request.end]).startswith(b"decline and wait"):
            request.retain()
            self.waiting.append(request)
            return PENDING
        return self.answer(request)

    def answer(self, request: Request) -> bytes:
        return answer(request, bytes(request.buffer[request.body : request.end]).upper())


@asynccontextmanager
async def serving(fast_path: Any, **settings: Any) -> AsyncIterator[tuple[Full, Served]]:
    config = SocketServerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), **settings)
    server = SocketServer(config, SystemClock())
    server.bind()
    full = Full()
    server.serve("PLAINTEXT", full, SERVED, fast_path=fast_path)
    served = Served(server)
    try:
        yield full, served
    finally:
        served.close_clients()
        await server.stop()


@pytest.fixture
def handler(handlers: Any, reads_with: str) -> Any:
    if reads_with != "selector":
        pytest.skip("only the selector has a fast path")
    return handlers.FakeHandler()


async def bodies(client: Client, count: int) -> list[bytes]:
    return [(await client.response())[1] for _ in range(count)]


def channel_of(served: Served) -> Any:
    (channel,) = served.server.processor.channels.values()
    return channel


def test_later_answers_wait_for_a_deferred_one(run: Run, handler: Any) -> None:
    async def scenario() -> None:
        async with serving(handler) as (_, served):
            client = await served.client()
            sent = [
                b"one",
                b"defer two",
                b"three",
                b"four",
                b"defer five",
                b"six",
                b"decline",
                b"x",
            ]
            await client.send(b"".join(frame(i, body) for i, body in enumerate(sent)))
            assert await bodies(client, 1) == [b"one"]
            # The fast path goes on behind what it has deferred, until it declines.
            await until_async(lambda: channel_of(served).state.requests == len(sent))
            assert handler.prepared == [b"one", b"three", b"four", b"six"]
            assert channel_of(served).state.bytes_out == 8 + len(b"one")

            handler.complete(b"defer five")
            await asyncio.sleep(0)
            handler.complete(b"defer two")
            rest = [b"defer two", b"three", b"four", b"defer five", b"six", b"DECLINE", b"X"]
            assert await bodies(client, len(rest)) == rest
            assert served.server.processor.requests_received == len(sent)

            await client.send(frame(9, b"again"))
            assert await bodies(client, 1) == [b"again"]
            assert channel_of(served).state.deferred == 0
            assert channel_of(served).state.in_flight == 0

    run(scenario())


@pytest.mark.parametrize("first", [b"defer until append", b"early"])
def test_an_answer_may_come_in_the_turn_it_was_deferred_in(
    run: Run, handler: Any, first: bytes
) -> None:
    async def scenario() -> None:
        async with serving(handler) as (_, served):
            client = await served.client()
            await client.send(frame(1, b"zero") + frame(2, first) + frame(3, b"second"))
            assert await bodies(client, 3) == [b"zero", first, b"second"]

    run(scenario())


def test_nothing_takes_the_fast_path_behind_a_request_of_the_full_one(
    run: Run, handler: Any
) -> None:
    async def scenario() -> None:
        async with serving(handler) as (full, served):
            client = await served.client()
            await client.send(frame(1, b"decline and wait"))
            await until_async(lambda: bool(full.waiting))
            await client.send(frame(2, b"defer two") + frame(3, b"three"))
            await until_async(lambda: channel_of(served).state.requests == 3)
            assert handler.prepared == []
            full.waiting[0].complete(full.answer(full.waiting[0]))
            assert await bodies(client, 3) == [b"DECLINE AND WAIT", b"DEFER TWO", b"THREE"]

    run(scenario())


def test_an_answer_for_a_connection_that_is_gone_is_dropped(run: Run, handler: Any) -> None:
    async def scenario() -> None:
        async with serving(handler) as (_, served):
            client = await served.client()
            await client.send(frame(1, b"defer one") + frame(2, b"two"))
            await until_async(lambda: b"defer one" in handler.later)
            client.vanish()
            await served.until(0)
            handler.complete(b"defer one")
            other = await served.client()
            await other.send(frame(1, b"other"))
            assert await bodies(other, 1) == [b"other"]

    run(scenario())


def test_a_connection_with_many_deferred_answers_is_not_read(run: Run, handler: Any) -> None:
    async def scenario() -> None:
        async with serving(handler, in_flight_requests_max=4) as (_, served):
            client = await served.client()
            sent = [b"defer %d" % number for number in range(10)]
            await client.send(b"".join(frame(i, body) for i, body in enumerate(sent)))
            await until_async(lambda: len(served.server.processor.channels) == 1)
            for first in (0, 4, 8):
                group = sent[first : first + 4]
                await until_async(lambda group=group: sorted(handler.later) == group)  # type: ignore[misc]
                assert channel_of(served).is_muted == (len(group) == 4)
                for body in group:
                    handler.complete(body)
            # What was received before the mute takes the fast path as well.
            assert await bodies(client, len(sent)) == sent

    run(scenario())


def test_deferred_answers_go_down_with_an_append_that_fails(run: Run, handler: Any) -> None:
    async def scenario() -> None:
        async with serving(handler) as (_, served):
            problems: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: problems.append(context)
            )
            client = await served.client()
            await client.send(frame(1, b"defer one") + frame(2, b"fail"))
            assert await client.is_closed_by_server()
            handler.complete(b"defer one")
            assert {str(each["exception"]) for each in problems} == {
                "nobody knows what was appended"
            }

    run(scenario())


def test_a_connection_with_a_reason_for_it_takes_the_full_path(run: Run, handler: Any) -> None:
    async def scenario() -> None:
        async with serving(handler) as (_, served):
            client = await served.client()
            await client.send(frame(1, b"fast"))
            assert await bodies(client, 1) == [b"fast"]
            for reason in FullPath:
                channel_of(served).state.full_path |= reason
                await client.send(frame(2, b"full"))
                assert await bodies(client, 1) == [b"FULL"]
                channel_of(served).state.full_path = 0
            await client.send(frame(3, b"fast"))
            assert await bodies(client, 1) == [b"fast"]
            selector = served.server.processor.selector
            assert selector is not None
            assert selector.answered == 2

    run(scenario())


def test_an_api_that_is_declined_takes_the_full_path(run: Run, handler: Any) -> None:
    metadata = 3

    async def scenario() -> None:
        async with serving(handler) as (_, served):
            client = await served.client()
            for declined, expected in [(0, b"x"), (1 << metadata, b"X"), (1 << 4, b"x")]:
                handler.declined_apis = declined
                await client.send(frame(1, b"x"))
                assert await bodies(client, 1) == [expected]

    run(scenario())


def test_bytes_that_a_transport_has_taken_are_not_forgotten(
    run: Run, handlers: Any, handler: Any
) -> None:
    async def scenario() -> None:
        async with serving(handler, in_flight_requests_max=3) as (_, served):
            client = await served.client()
            await served.until(1)
            channel = channel_of(served)
            transport = channel._gate._transport
            handlers.buffer_up(transport)
            # One read takes all of it. The mute in the middle leaves some of it in the transport.
            sent = [b"defer %d" % number for number in range(3)] + [b"%d" % n for n in range(20)]
            await client.send(b"".join(frame(i, body) for i, body in enumerate(sent)))
            await until_async(lambda: bool(channel.is_muted))
            for body in sent[:3]:
                handler.complete(body)
            assert await bodies(client, len(sent)) == sent
            client.close()
            await served.until(0)
            handlers.let_go(transport)

    run(scenario())
