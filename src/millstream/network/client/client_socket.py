"""One non-blocking socket of a client: bytes out in order, frames in.

`SocketSelector` owns it and tells it when the system has room or news. A frame is copied at most
once: what does not fit the shared receive buffer is read straight into a buffer of its own.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.errors import ProtocolError
from millstream.protocol.frame import SIZE_BYTES, cut_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.network.client.name_resolution import SocketAddress
    from millstream.network.client.transport import ClientTransport
    from millstream.types import ReadableBuffer

_RECEIVE_BYTES: Final = 1 << 16
_RECEIVES_PER_TURN: Final = 16
"""A connection that never runs dry must let the others have their turn."""
_PARTS_PER_CALL: Final = 64

CLOSED_BY_BROKER: Final = "the broker closed the connection"


class SocketClosed(Exception):
    """The connection has ended; the text says why."""


class ClientSocket:
    """A socket that is being connected, shakes hands, or is ready for frames."""

    __slots__ = (
        "_backlog",
        "_frame_bytes_max",
        "_frames",
        "_large",
        "_large_end",
        "_open_transport",
        "_rest",
        "_transport",
        "socket",
    )

    def __init__(
        self,
        address: SocketAddress,
        frame_bytes_max: int,
        open_transport: Callable[[socket.socket], ClientTransport],
    ) -> None:
        """Begins to connect; raises SocketClosed if that fails at once."""
        self._open_transport = open_transport
        self._transport: ClientTransport | None = None
        self._backlog: deque[memoryview] = deque()
        self._frame_bytes_max = frame_bytes_max
        self._frames: list[ReadableBuffer] = []
        self._rest = b""
        # A frame that is read in place: its buffer, and up to where it is filled.
        self._large: bytearray | None = None
        self._large_end = 0
        try:
            self.socket = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:
            raise SocketClosed(_reason(error)) from error
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.connect(address.address)
        except BlockingIOError:
            pass
        except OSError as error:
            self.socket.close()
            raise SocketClosed(_reason(error)) from error

    @property
    def has_backlog(self) -> bool:
        """Whether bytes wait for room in the system's buffer."""
        return bool(self._backlog)

    @property
    def has_unread(self) -> bool:
        """Whether the transport has bytes that the system does not tell of."""
        return self._transport is not None and self._transport.has_buffered

    def shake_hands(self) -> int:
        """Go on towards readiness, as `ClientTransport.shake_hands`; SocketClosed if it failed."""
        try:
            if self._transport is None:
                code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise SocketClosed(_reason(OSError(code, "")))
                self._transport = self._open_transport(self.socket)
            return self._transport.shake_hands()
        except OSError as error:
            raise SocketClosed(_reason(error)) from error

    def send(self, parts: Sequence[ReadableBuffer]) -> None:
        """Send what fits now and keep the rest."""
        was_empty = not self._backlog
        self._backlog.extend(memoryview(part) for part in parts if len(part))
        if was_empty:
            self.flush()

    def flush(self) -> None:
        """Send of the backlog what fits."""
        backlog = self._backlog
        assert self._transport is not None
        try:
            while backlog:
                sent = self._transport.send(
                    [backlog[i] for i in range(min(len(backlog), _PARTS_PER_CALL))]
                )
                while backlog and sent >= len(backlog[0]):
                    sent -= len(backlog.popleft())
                if sent:
                    backlog[0] = backlog[0][sent:]
        except BlockingIOError:
            return
        except OSError as error:
            raise SocketClosed(_reason(error)) from error

    def receive(self) -> list[ReadableBuffer]:
        """Every frame that is complete now. After an error `take_frames` has those before it."""
        transport = self._transport
        assert transport is not None
        try:
            for _ in range(_RECEIVES_PER_TURN):
                receive = self._receive_large if self._large else self._receive_small
                if not receive(transport) and not transport.has_buffered:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            raise SocketClosed(_reason(error)) from error
        return self.take_frames()

    def take_frames(self) -> list[ReadableBuffer]:
        """What was received and not yet given out."""
        frames, self._frames = self._frames, []
        return frames

    def close(self) -> None:
        """Hang up; again is fine."""
        self._backlog.clear()
        self.socket.close()

    def _receive_small(self, transport: ClientTransport) -> bool:
        """Read once; False when the system has no more for now."""
        received = transport.receive(_RECEIVE_BYTES)
        if not received:
            raise SocketClosed(CLOSED_BY_BROKER)
        data = self._rest + received if self._rest else received
        self._rest = b""
        try:
            cut = cut_frames(data, 0, len(data), frame_bytes_max=self._frame_bytes_max)
        except ProtocolError:
            self._frames += _frames_before_the_fault(data, self._frame_bytes_max)
            raise
        self._frames += [data[start:end] for start, end in cut.bounds]
        if len(data) - cut.rest >= SIZE_BYTES:
            self._begin_large(memoryview(data)[cut.rest + SIZE_BYTES :], cut.wanted - SIZE_BYTES)
        else:
            self._rest = data[cut.rest :]
        return len(received) == _RECEIVE_BYTES

    def _begin_large(self, beginning: memoryview, size: int) -> None:
        self._large = bytearray(size)
        self._large[: len(beginning)] = beginning
        self._large_end = len(beginning)

    def _receive_large(self, transport: ClientTransport) -> bool:
        assert self._large is not None
        with memoryview(self._large) as view, view[self._large_end :] as room:
            received = transport.receive_into(room)
            has_more = received == len(room)
        if not received:
            raise SocketClosed(CLOSED_BY_BROKER)
        self._large_end += received
        if self._large_end == len(self._large):
            self._frames.append(self._large)
            self._large = None
        return has_more


def _frames_before_the_fault(data: bytes, frame_bytes_max: int) -> list[bytes]:
    """The answers that came before bytes which are no frame: they are answers all the same."""
    frames: list[bytes] = []
    start = 0
    while (size := int.from_bytes(data[start : start + SIZE_BYTES], "big", signed=True)) > 0:
        if size > frame_bytes_max:
            break
        frames.append(data[start + SIZE_BYTES : start + SIZE_BYTES + size])
        start += SIZE_BYTES + size
    return frames


def describe_errno(code: int) -> str:
    """Why the system ended a connection, and what to look at."""
    match code:
        case errno.ECONNREFUSED:
            return "connection refused: is a broker running there?"
        case errno.ECONNRESET | errno.EPIPE:
            return "the broker closed the connection: is it a Kafka listener without TLS?"
        case _:
            return os.strerror(code)


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else describe_errno(error.errno)
