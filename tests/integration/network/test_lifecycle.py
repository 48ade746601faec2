"""Listeners, limits on connections, and the end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, InvalidConfig
from millstream.network.server import (
    PENDING,
    Connection,
    Outcome,
    Request,
    Response,
    SocketServer,
    SocketServerConfig,
)
from millstream.network.server.channel import KafkaChannel
from millstream.network.server.listener_limits import ListenerLimits
from tests.integration.network.harness import SERVED, Client, answer, echo, frame, serving
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, None]], None]

pytestmark = pytest.mark.integration


def test_draining_finishes_what_is_in_flight(run: Run) -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        parked.append(request)
        return PENDING

    async def scenario() -> None:
        async with serving(handle) as served:
            client, idle = await served.client(), await served.client()
            await client.send(frame(1) + frame(2))
            await until_async(lambda: len(parked) >= 2)
            draining = asyncio.ensure_future(served.server.drain(30_000))
            assert await idle.is_closed_by_server()
            with pytest.raises(ConnectionRefusedError):
                await Client.connect(served.port)
            await client.send(frame(3))
            for request in reversed(parked):
                request.complete(answer(request, bytes(500_000)))
            assert await client.ids(2) == [1, 2]
            assert await client.is_closed_by_server()
            assert await draining
            assert len(parked) == 2

    run(scenario())


def test_a_drain_that_takes_too_long_says_so(run: Run) -> None:
    async def scenario() -> None:
        async with serving(lambda _: PENDING) as served:
            client = await served.client()
            await client.send(frame(1))
            await until_async(lambda: bool(served.server.processor.requests_received))
            assert not await served.server.drain(20)
            await served.server.stop()
            assert await client.is_closed_by_server()

    run(scenario())


def test_connections_per_address_are_limited(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, max_connections_per_ip=2) as served:
            first, second, third = [await served.client() for _ in range(3)]
            assert await third.is_closed_by_server()
            assert served.server.quotas.rejected == 1
            first.close()
            await served.until(connections=1)
            fourth = await served.client()
            for client in (second, fourth):
                await client.send(frame(1))
                assert await client.ids(1) == [1]

    run(scenario())


def test_an_address_may_have_a_limit_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        overrides = ("127.0.0.1:1",)
        async with serving(echo, max_connections_per_ip_overrides=overrides) as served:
            first, second = await served.client(), await served.client()
            assert await second.is_closed_by_server()
            await first.send(frame(1))
            assert await first.ids(1) == [1]

    run(scenario())


def test_above_the_total_limit_new_connections_wait(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, max_connections=2) as served:
            first, _ = await served.client(), await served.client()
            await served.until(connections=2)
            waiting = await served.client()
            await waiting.send(frame(5))
            await first.send(frame(1))
            assert await first.ids(1) == [1]
            assert served.server.quotas.total == 2
            first.close()
            assert await waiting.ids(1) == [5]

    run(scenario())


def test_a_listener_above_its_limit_waits_and_keeps_nobody_else_waiting(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        config = SocketServerConfig(
            listeners=("OUTSIDE://127.0.0.1:0", "INSIDE://127.0.0.1:0"),
            listener_security_protocol_map=("OUTSIDE:PLAINTEXT", "INSIDE:PLAINTEXT"),
            inter_broker_listener_name="OUTSIDE",
            listener_limits={"OUTSIDE": ListenerLimits(max_connections=1)},
        )
        server = SocketServer(config, SystemClock())
        outside, inside = (endpoint.port for endpoint in server.bind())
        server.serve("OUTSIDE", echo, SERVED)
        server.serve("INSIDE", echo, SERVED)
        first = await Client.connect(outside)
        await first.send(frame(1))
        assert await first.ids(1) == [1]
        waiting, others = await Client.connect(outside), await Client.connect(inside)
        await waiting.send(frame(2))
        await others.send(frame(3))
        assert await others.ids(1) == [3]
        assert server.quotas.total == 2
        assert "listener.name.outside.max.connections is reached" in caplog.text
        first.close()
        assert await waiting.ids(1) == [2]

        third = await Client.connect(outside)
        await third.send(frame(4))
        server.update_limits(replace(config, listener_limits={}))
        assert await third.ids(1) == [4]
        for client in (waiting, others, third):
            client.close()
        await server.stop()

    run(scenario())


async def next_millisecond(clock: SystemClock) -> None:
    """Return when the clock of "least recently used" shows another time."""
    before_ms = clock.monotonic_ms()
    await until_async(lambda: clock.monotonic_ms() > before_ms)


def test_the_listener_between_brokers_takes_a_connection_from_another(run: Run) -> None:
    async def scenario() -> None:
        config = SocketServerConfig(
            listeners=("CLIENTS://127.0.0.1:0", "BROKERS://127.0.0.1:0"),
            listener_security_protocol_map=("CLIENTS:PLAINTEXT", "BROKERS:PLAINTEXT"),
            inter_broker_listener_name="BROKERS",
            max_connections=2,
        )
        clock = SystemClock()
        server = SocketServer(config, clock)
        clients_port, brokers_port = (endpoint.port for endpoint in server.bind())
        server.serve("CLIENTS", echo, SERVED)
        server.serve("BROKERS", echo, SERVED)
        old, new = [await Client.connect(clients_port) for _ in range(2)]
        for client in (old, new):
            await next_millisecond(clock)
            await client.send(frame(1))
            assert await client.ids(1) == [1]
        broker = await Client.connect(brokers_port)
        await broker.send(frame(2))
        assert await broker.ids(1) == [2]
        assert await old.is_closed_by_server()
        await new.send(frame(3))
        assert await new.ids(1) == [3]
        for client in (old, new, broker):
            client.close()
        await server.stop()

    run(scenario())


def test_a_burst_of_connections_is_spread_over_time(run: Run) -> None:
    async def scenario() -> None:
        async with serving(echo, max_connection_creation_rate=5) as served:
            clients = [await served.client() for _ in range(8)]
            for client in clients:
                await client.send(frame(1))
            for client in clients[:5]:
                assert await client.ids(1) == [1]
            assert served.server.processor.connections_opened == 5
            assert await clients[7].ids(1) == [1]

    run(scenario())


def test_several_listeners_have_their_own_handlers(run: Run) -> None:
    seen: list[str] = []

    def handle(request: Request) -> Response | Outcome:
        connection = request.connection
        seen.append(f"{connection.listener_name} {connection.peer_host}")
        assert connection.local_address[1] in ports
        return answer(request)

    ports: list[int] = []

    async def scenario() -> None:
        closed: list[Connection] = []
        config = SocketServerConfig(
            listeners=("PLAINTEXT://:0", "CONTROLLER://127.0.0.1:0"),
            listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
            controller_listener_names=("CONTROLLER",),
        )
        server = SocketServer(config, SystemClock(), on_close=closed.append)
        ports.extend(endpoint.port for endpoint in server.bind())
        server.serve("CONTROLLER", handle, SERVED)
        early = await Client.connect(ports[0])
        await early.send(frame(1))
        controller = await Client.connect(ports[1])
        await controller.send(frame(2))
        assert await controller.ids(1) == [2]
        server.serve("PLAINTEXT", handle, SERVED)
        assert await early.ids(1) == [1]
        assert seen == ["CONTROLLER 127.0.0.1", "PLAINTEXT 127.0.0.1"]
        assert [
            endpoint.port for endpoint in server.config.advertised(server.endpoints, "localhost")
        ] == ports[:1]
        early.close()
        controller.close()
        await until_async(lambda: len(closed) >= 2)
        await server.stop()

    run(scenario())


def test_a_taken_port_is_named_and_nothing_stays_bound(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free_port = probe.getsockname()[1]
            probe.close()
            taken_port = taken.getsockname()[1]
            config = SocketServerConfig(
                listeners=(f"A://127.0.0.1:{free_port}", f"B://127.0.0.1:{taken_port}"),
                listener_security_protocol_map=("A:PLAINTEXT", "B:PLAINTEXT"),
            )
            server = SocketServer(config, SystemClock())
            with pytest.raises(InvalidConfig, match=f"B://127.0.0.1:{taken_port}.*another process"):
                server.bind()
            socket.create_server(("127.0.0.1", free_port)).close()
            await server.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("listener", "problem"),
    [
        ("PLAINTEXT://no-such-host.invalid:0", "cannot be resolved"),
        ("PLAINTEXT://192.0.2.77:0", "does not have that address"),
    ],
)
def test_an_address_that_cannot_be_had_is_explained(run: Run, listener: str, problem: str) -> None:
    async def scenario() -> None:
        server = SocketServer(SocketServerConfig(listeners=(listener,)), SystemClock())
        with pytest.raises(InvalidConfig, match=problem):
            server.bind()

    run(scenario())


def test_a_listener_is_served_once_and_an_encrypted_one_with_a_certificate(run: Run) -> None:
    async def scenario() -> None:
        config = SocketServerConfig(listeners=("SSL://127.0.0.1:0",))
        server = SocketServer(config, SystemClock())
        with pytest.raises(InvalidArgument, match="not bound"):
            server.serve("SSL", echo, SERVED)
        server.bind()
        with pytest.raises(InvalidConfig, match="needs a certificate"):
            server.serve("SSL", echo, SERVED)
        await server.stop()

    run(scenario())


@pytest.mark.parametrize("name", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_that_promises_authentication_is_never_served_without(
    run: Run, name: str
) -> None:
    async def scenario() -> None:
        server = SocketServer(
            SocketServerConfig(listeners=(f"{name}://127.0.0.1:0",)), SystemClock()
        )
        server.bind()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with pytest.raises(InvalidConfig, match="cannot authenticate clients"):
            server.serve(name, echo, SERVED, ssl_context=context)
        await server.stop()

    run(scenario())


def test_ipv6_is_served(run: Run) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    async def scenario() -> None:
        config = SocketServerConfig(listeners=("PLAINTEXT://[::1]:0",))
        server = SocketServer(config, SystemClock())
        (endpoint,) = server.bind()
        server.serve("PLAINTEXT", echo, SERVED)
        reader, writer = await asyncio.open_connection("::1", endpoint.port)
        writer.write(frame(1))
        assert await reader.readexactly(8) == b"\0\0\0\x04\0\0\0\x01"
        writer.close()
        await writer.wait_closed()
        await server.stop()

    run(scenario())


def test_the_end_of_an_answer_does_not_wait_for_an_acknowledgement(run: Run) -> None:
    accepted: list[socket.socket] = []

    def handle(request: Request) -> Response | Outcome:
        assert isinstance(request.connection, KafkaChannel)
        accepted.append(request.connection._socket)
        return echo(request)

    async def scenario() -> None:
        async with serving(handle) as served:
            client = await served.client()
            await client.send(frame(1))
            assert await client.ids(1) == [1]
            assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario())
