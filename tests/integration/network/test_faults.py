"""Clients that do everything wrong: the server closes their connection and serves the others."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any

import pytest

from millstream.network.server import PENDING, Outcome, Request, Response
from tests.integration.network.harness import Client, Served, answer, echo, frame, serving
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, None]], None]

pytestmark = pytest.mark.integration


async def still_serves(served: Served) -> None:
    """A well-behaved client gets its answer."""
    client = await served.client()
    await client.send(frame(99, b"fine"))
    assert await client.response() == (99, b"fine")


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"\xff\xff\xff\xff", id="negative size"),
        pytest.param(b"\0\0\0\0", id="zero size"),
        pytest.param(b"\x7f\xff\xff\xff", id="huge size"),
        pytest.param(struct.pack(">ihhih", 10, 4711, 0, 1, -1), id="unknown api"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="unknown version"),
        pytest.param(bytes(range(256)) * 40, id="noise"),
    ],
)
def test_garbage_is_answered_with_a_closed_connection(run: Run, garbage: bytes) -> None:
    async def scenario() -> None:
        async with serving(echo) as served:
            client = await served.client()
            await client.send(garbage)
            assert await client.is_closed_by_server()
            await still_serves(served)

    run(scenario())


def test_half_a_frame_waits_and_hurts_nobody(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo) as served:
            client = await served.client()
            whole = frame(1, b"x" * 5000)
            await client.send(whole[:2])
            await still_serves(served)
            await client.send(whole[2:3000])
            await still_serves(served)
            await client.send(whole[3000:])
            assert await client.response() == (1, b"x" * 5000)

    run(scenario())


def test_a_frame_above_the_limit_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, socket_request_max_bytes=10_000) as served:
            client = await served.client()
            await client.send(frame(1, bytes(9_000)))
            assert (await client.response())[0] == 1
            await client.send(frame(2, bytes(10_001)))
            assert await client.is_closed_by_server()
            await still_serves(served)

    run(scenario())


@pytest.mark.parametrize("leave", ["close", "vanish"])
def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(run: Run, leave: str) -> None:
    async def scenario() -> None:
        async with serving(echo) as served:
            client = await served.client()
            await client.send(frame(1, bytes(500_000))[:100_000])
            await served.until(connections=1)
            getattr(client, leave)()
            await served.until(connections=0)
            assert served.server.processor.pool.taken_bytes == 0
            assert served.server.processor.requests.bytes_in_memory == 0
            assert served.server.quotas.total == 0
            await still_serves(served)

    run(scenario())


@pytest.mark.parametrize("leave", ["close", "vanish"])
def test_a_client_that_leaves_in_the_middle_of_a_response_is_forgotten(
    run: Run, leave: str
) -> None:
    def handle(request: Request) -> Response | Outcome:
        return answer(request, bytes(20_000_000 if request.correlation_id == 1 else 0))

    async def scenario() -> None:
        async with serving(handle) as served:
            client = await served.client()
            await client.send(frame(1))
            await client.receive(100_000)
            getattr(client, leave)()
            await served.until(connections=0)
            other = await served.client()
            await other.send(frame(2))
            assert await other.ids(1) == [2]

    run(scenario())


def test_a_client_that_leaves_while_its_request_is_pending_is_forgotten(run: Run) -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        parked.append(request)
        return PENDING

    async def scenario() -> None:
        async with serving(handle) as served:
            client = await served.client()
            await client.send(frame(1))
            await until_async(lambda: bool(parked))
            client.vanish()
            await served.until(connections=0)
            parked[0].complete(answer(parked[0]))
            await asyncio.sleep(0)

    run(scenario())


def test_a_slow_reader_is_not_read_from_but_loses_nothing(run: Run) -> None:
    handled = 0

    def handle(request: Request) -> Response | Outcome:
        nonlocal handled
        handled += 1
        return answer(request, bytes(100_000))

    async def scenario() -> None:
        async with serving(handle) as served:
            client = await served.client(receive_buffer=8192)
            requests = 400
            await client.send(b"".join(frame(number) for number in range(requests)))
            await until_async(lambda: served.server.processor.mutes > 0)
            await still_answers_others(served)
            assert handled < requests
            assert await client.ids(requests) == list(range(requests))

    async def still_answers_others(served: Served) -> None:
        other = await served.client()
        await other.send(frame(7))
        assert await other.ids(1) == [7]

    run(scenario())


def test_a_reader_that_stopped_is_closed_after_the_bound(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, write_stall_max_ms=50) as served:
            client = await served.client(receive_buffer=8192)
            await client.send(frame(1, bytes(10_000_000)))
            await served.until(connections=1)
            await served.until(connections=0)
            assert served.server.processor.connections_stalled == 1
            await still_serves(served)

    run(scenario())


def test_idle_connections_are_closed_and_busy_ones_are_not(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, connections_max_idle_ms=300) as served:
            idle = await served.client()
            closed = asyncio.ensure_future(idle.is_closed_by_server())
            busy = await served.client()
            number = 0
            while not closed.done():
                number += 1
                await busy.send(frame(number))
                assert await busy.ids(1) == [number]
            assert await closed
            assert served.server.processor.connections_expired == 1

    run(scenario())


def test_hundreds_of_idle_connections_cost_nothing_and_all_work(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, socket_listen_backlog_size=1000) as served:
            clients = [await served.client() for _ in range(600)]
            await served.until(connections=600)
            assert served.server.processor.pool.taken_bytes == 0

            for number, client in enumerate(clients):
                await client.send(frame(number, b"hello"))
            for number, client in enumerate(clients):
                assert await client.response() == (number, b"hello")

            assert served.server.processor.pool.taken_bytes == 0
            assert served.server.processor.requests_received == 600
            served.close_clients()
            await served.until(connections=0)

    run(scenario())


def test_the_log_names_the_peer_and_its_mistake_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream.network")

    async def scenario() -> None:
        async with serving(echo) as served:
            for _ in range(20):
                client = await Client.connect(served.port)
                await client.send(b"GET / HTTP/1.0\r\n\r\n")
                assert await client.is_closed_by_server()
                client.close()

    run(scenario())

    lines = [message for message in caplog.messages if "HTTP" in message]
    assert len(lines) == 1
    assert "127.0.0.1" in lines[0]
    assert "PLAINTEXT" in lines[0]
