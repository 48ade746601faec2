"""A loop, a transport and frames for tests of channels without sockets.

Channels in these tests are of an encrypted listener: their sender then writes to the transport,
which here only remembers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

from millstream.clock import ManualClock
from millstream.network.endpoint import Endpoint, SecurityProtocol
from millstream.network.server import (
    PENDING,
    Outcome,
    Request,
    Response,
    SocketServerConfig,
    header_versions,
)
from millstream.network.server.channel import KafkaChannel
from millstream.network.server.processor import ListenerService, Processor
from millstream.protocol.api import ApiKey

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from millstream.network.server import Connection, RequestHandler
    from millstream.types import ReadableBuffer

METADATA_V1 = (3, 1)
METADATA_V9 = (3, 9)


def frame(
    correlation_id: int = 1,
    body: bytes = b"",
    *,
    api: tuple[int, int] = METADATA_V1,
    client_id: bytes | None = b"tester",
) -> bytes:
    """A request frame, its size in front."""
    length = -1 if client_id is None else len(client_id)
    header = struct.pack(">hhih", *api, correlation_id, length) + (client_id or b"")
    if api == METADATA_V9:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def answer(request: Request, body: bytes = b"") -> bytes:
    """A response frame."""
    return struct.pack(">ii", 4 + len(body), request.correlation_id) + body


def echo(request: Request) -> Response | Outcome:
    """Answer with the body."""
    return answer(request, bytes(request.buffer[request.body : request.end]))


def answered_ids(stream: bytes) -> list[int]:
    """The correlation ids of whole response frames."""
    ids = []
    while stream:
        size, correlation_id = struct.unpack_from(">ii", stream)
        ids.append(correlation_id)
        stream = stream[4 + size :]
    return ids


class FakeTimer:
    """A timer that never rings by itself."""

    def __init__(self, delay: float, callback: Callable[..., object]) -> None:
        self.delay = delay
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Forget it."""
        self.is_cancelled = True


class FakeLoop:
    """Collects what should run soon; `run` runs it."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.timers: list[FakeTimer] = []

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Remember."""
        self.soon.append((callback, arguments))

    def call_later(self, delay: float, callback: Callable[..., object]) -> FakeTimer:
        """Remember."""
        self.timers.append(FakeTimer(delay, callback))
        return self.timers[-1]

    def run(self) -> None:
        """Run until nothing is left."""
        while self.soon:
            callback, arguments = self.soon.pop(0)
            callback(*arguments)


class FakeTransport:
    """Takes everything, remembers everything."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.channel: KafkaChannel | None = None
        self.writes: list[bytes] = []
        self.is_reading = True
        self.is_closed = False
        self.was_aborted = False
        self.has_half_close = False
        self.is_half_closed = False

    @property
    def written(self) -> bytes:
        """All that was written."""
        return b"".join(self.writes)

    def write(self, data: ReadableBuffer) -> None:
        """Remember."""
        assert not self.is_closed
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """The fake decides by itself."""

    def pause_reading(self) -> None:
        """A real one is never paused twice."""
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        """A real one is never resumed twice."""
        assert not self.is_reading
        self.is_reading = True

    def can_write_eof(self) -> bool:
        """As an encrypted transport, unless a test says otherwise."""
        return self.has_half_close

    def write_eof(self) -> None:
        """Remember."""
        self.is_half_closed = True

    def close(self) -> None:
        """As asyncio does it: the protocol hears of it in the next turn."""
        if not self.is_closed:
            self.is_closed = True
            assert self.channel is not None
            self.loop.call_soon(self.channel.connection_lost, None)

    def abort(self) -> None:
        """The same, without flushing."""
        self.was_aborted = True
        self.close()


class World:
    """A processor with channels on fake transports."""

    def __init__(self, handle: RequestHandler, **settings: Any) -> None:
        self.config = SocketServerConfig(listeners=("SSL://localhost:0",), **settings)
        self.clock = ManualClock()
        self.loop = FakeLoop()
        self.closed: list[Connection] = []
        self.processor = Processor(
            self.config,
            self.clock,
            cast("asyncio.AbstractEventLoop", self.loop),
            self.closed.append,
        )
        endpoint = Endpoint("SSL", SecurityProtocol.SSL, "localhost", 9092)
        versions = header_versions({api: api.released for api in ApiKey})
        self.service = ListenerService(endpoint, handle, versions)
        self._next_id = 1

    def connect(self) -> tuple[KafkaChannel, FakeTransport]:
        """A new connection that is ready."""
        channel = KafkaChannel(self.processor, self.service, cast("Any", None), self._next_id)
        channel.peer_host, channel.peer_port = "10.1.2.3", 40_000 + self._next_id
        self._next_id += 1
        transport = FakeTransport(self.loop)
        transport.channel = channel
        channel.connection_made(cast("asyncio.Transport", transport))
        return channel, transport

    def advance(self, ms: int) -> None:
        """Let time pass and everything happen that was due."""
        self.clock.advance(ms)
        self.processor.run_deadlines()
        self.loop.run()


def receive(channel: KafkaChannel, data: bytes) -> bytes:
    """What the loop does when bytes have arrived: read until all is read or the channel is muted.

    What was not read is returned; it waits in the kernel.
    """
    while data and not channel.is_muted:
        space = channel.get_buffer(-1)
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        channel.buffer_updated(count)
        data = data[count:]
    return data


class Parking:
    """A handler that answers nothing by itself and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Response | Outcome:
        self.requests.append(request)
        return PENDING

    def complete(self, correlation_id: int) -> None:
        """Answer one of them."""
        request = next(each for each in self.requests if each.correlation_id == correlation_id)
        request.complete(answer(request))
