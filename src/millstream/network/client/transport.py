"""A connection of the plain selector behind two calls, receive and send, and a handshake first.

`ClientSocket` knows nothing else of what is between it and the broker. `PlainTransport` is a
socket, without a handshake; TLS would be another. The compiled selector's transports are those of
`_accel/client/client_transport.h`.
"""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from millstream.types import ReadableBuffer

DONE: Final = 0
READS: Final = selectors.EVENT_READ
WRITES: Final = selectors.EVENT_WRITE


class ClientTransport(Protocol):
    """The bytes of one connection. Each raises OSError when it has ended, and BlockingIOError, but
    in the handshake, when nothing can be done now."""

    def shake_hands(self) -> int:
        """One step: DONE, or what it waits for, READS or WRITES."""
        ...

    def receive(self, size: int) -> bytes:
        """What has come, up to `size` bytes; nothing at the end of the stream."""
        ...

    def receive_into(self, room: memoryview) -> int:
        """The same into memory of the caller; how many bytes."""
        ...

    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        """How many bytes were taken."""
        ...

    @property
    def has_buffered(self) -> bool:
        """Whether bytes were taken from the socket and not received: no poll tells of them."""
        ...


class PlainTransport:
    """A socket as it is."""

    __slots__ = ("_socket",)

    has_buffered = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def shake_hands(self) -> int:
        """Nothing comes before the frames."""
        return DONE

    def receive(self, size: int) -> bytes:
        """See `ClientTransport`."""
        return self._socket.recv(size)

    def receive_into(self, room: memoryview) -> int:
        """See `ClientTransport`."""
        return self._socket.recv_into(room)

    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        """See `ClientTransport`."""
        return self._socket.sendmsg(parts)
