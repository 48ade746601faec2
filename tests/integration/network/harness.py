"""A socket server and raw clients for the tests of this folder."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from millstream.clock import SystemClock
from millstream.network.server import Outcome, Request, Response, SocketServer, SocketServerConfig
from millstream.protocol.api import ApiKey
from tests.waiting import until_async

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millstream.network.server import RequestHandler

SERVED = {api: api.released for api in ApiKey}


def frame(correlation_id: int, body: bytes = b"") -> bytes:
    """A Metadata v1 request, its size in front."""
    header = struct.pack(">hhih", 3, 1, correlation_id, 4) + b"test"
    return struct.pack(">i", len(header) + len(body)) + header + body


def answer(request: Request, body: bytes = b"") -> bytes:
    """A response frame."""
    return struct.pack(">ii", 4 + len(body), request.correlation_id) + body


def echo(request: Request) -> Response | Outcome:
    """Answer with the request's body."""
    return answer(request, bytes(request.buffer[request.body : request.end]))


class Region:
    """A part of a real file; `is_hidden` takes its descriptor away."""

    def __init__(self, path: Path, position: int, length: int, *, is_hidden: bool = False) -> None:
        self._file = path.open("rb")
        self._is_hidden = is_hidden
        self.position = position
        self.length = length

    def fileno(self) -> int:
        """The descriptor."""
        return -1 if self._is_hidden else self._file.fileno()

    def read(self) -> bytes:
        """The bytes."""
        return os.pread(self._file.fileno(), self.length, self.position)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Client:
    """A connection that sends and expects raw bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0) -> Client:
        """Connect to a server on this machine."""
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return cls(sock)

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        await self._loop.sock_sendall(self.socket, data)

    async def receive(self, count: int) -> bytes:
        """Exactly so many bytes; fewer if the server closed."""
        received = bytearray()
        while len(received) < count:
            data = await self._loop.sock_recv(self.socket, min(count - len(received), 1 << 20))
            if not data:
                break
            received += data
        return bytes(received)

    async def response(self) -> tuple[int, bytes]:
        """The next response: correlation id and body."""
        size, correlation_id = struct.unpack(">ii", await self.receive(8))
        return correlation_id, await self.receive(size - 4)

    async def ids(self, count: int) -> list[int]:
        """The correlation ids of the next responses."""
        return [(await self.response())[0] for _ in range(count)]

    async def is_closed_by_server(self) -> bool:
        """Wait for the end of the stream; whether nothing came before it."""
        try:
            return await self.receive(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Leave politely."""
        self.socket.close()

    def vanish(self) -> None:
        """Leave with a reset, as a killed process with unread data does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Served:
    """A running server with one listener."""

    def __init__(self, server: SocketServer) -> None:
        self.server = server
        self.port = server.endpoints[0].port
        self._clients: list[Client] = []

    async def client(self, *, receive_buffer: int = 0) -> Client:
        """A new connection, closed at the end of the test."""
        client = await Client.connect(self.port, receive_buffer=receive_buffer)
        self._clients.append(client)
        return client

    async def until(self, connections: int) -> None:
        """Wait until the server has exactly so many connections."""
        await until_async(lambda: len(self.server.processor.channels) == connections)

    def close_clients(self) -> None:
        """Close all of them."""
        for client in self._clients:
            client.close()


@asynccontextmanager
async def serving(
    handle: RequestHandler, *, tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """A server on a free port of 127.0.0.1."""
    name = "SSL" if tls else "PLAINTEXT"
    config = SocketServerConfig(listeners=(f"{name}://127.0.0.1:0",), **settings)
    server = SocketServer(config, SystemClock())
    server.bind()
    server.serve(name, handle, SERVED, ssl_context=tls)
    served = Served(server)
    try:
        yield served
    finally:
        served.close_clients()
        await server.stop()
