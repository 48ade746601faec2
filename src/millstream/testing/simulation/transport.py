"""An asyncio transport on a simulated socket: it reads for a `KafkaChannel` and writes for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.simulation.sockets import SimSocket
    from millstream.types import ReadableBuffer


class SimTransport(asyncio.Transport):
    """The server's end of one connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: SimSocket,
        protocol: asyncio.BufferedProtocol,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._socket = sock
        self._protocol = protocol
        self._is_paused = False
        self._is_read_due = False
        self._is_closing = False

    def begin(self) -> None:
        """Read from now on."""
        self._socket.watch(self._read_soon)

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_paused = False
        if self._socket.inbox or self._socket.is_ended or self._socket.is_reset:
            self._read_soon()

    def write(self, data: ReadableBuffer) -> None:
        """See `asyncio.Transport`."""
        self._socket.send(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.Transport`: the network takes everything."""

    def can_write_eof(self) -> bool:
        """See `asyncio.Transport`."""
        return True

    def write_eof(self) -> None:
        """See `asyncio.Transport`."""
        self._socket.shutdown()

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._is_closing

    def close(self) -> None:
        """See `asyncio.Transport`."""
        self._lose(None)

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        self._lose(None)

    def _read_soon(self) -> None:
        if not self._is_read_due and not self._is_paused:
            self._is_read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_read_due = False
        sock = self._socket
        while sock.inbox and not self._is_paused and not self._is_closing:
            data = sock.inbox.popleft()
            space = memoryview(self._protocol.get_buffer(-1))
            taken = min(len(data), len(space))
            space[:taken] = data[:taken]
            if taken < len(data):
                sock.inbox.appendleft(data[taken:])
            self._protocol.buffer_updated(taken)
        if self._is_paused or self._is_closing:
            return
        if sock.is_reset:
            self._lose(ConnectionResetError("the connection was reset"))
        elif sock.is_ended and not sock.inbox:
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._socket.watch(None)
            self._socket.close()
            self._loop.call_soon(self._protocol.connection_lost, error)
