"""The client's end of many sockets: connect, send, receive frames, wait for any of them.

`ClientSelector` is what `NetworkClient`'s driver needs; `SocketSelector` is the plain one, on
`selectors`. It cuts frames and knows nothing of requests; it decides nothing about reconnecting.
One thread owns it; only `wake` may be called from others.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from millstream.clock import SystemClock
from millstream.errors import ProtocolError
from millstream.network.client.client_socket import ClientSocket, SocketClosed
from millstream.network.client.name_resolution import Resolution, numeric_addresses, resolve
from millstream.network.client.transport import DONE, PlainTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.clock import Clock
    from millstream.network.client.name_resolution import SocketAddress
    from millstream.network.client.transport import ClientTransport
    from millstream.types import ReadableBuffer

FRAME_BYTES_MAX: Final = 300 << 20
"""The largest response that is believed. The first bytes of a TLS alert or of an HTTP response,
taken for a size, are above it."""

_CORRELATION_ID: Final = slice(8, 12)


class Connected(NamedTuple):
    """A connection stands; requests may be sent."""

    connection_id: int


class Received(NamedTuple):
    """A response has arrived."""

    connection_id: int
    frame: ReadableBuffer
    """Without its size; it belongs to the receiver, nobody writes to it again."""


class Disconnected(NamedTuple):
    """A connection could not be made, or ended."""

    connection_id: int
    reason: str


class Repeated(NamedTuple):
    """A periodic request was sent once more."""

    connection_id: int
    periodic_id: int
    correlation_id: int
    sent_ms: int


class Dispatched(NamedTuple):
    """A request was sent that the selector took by itself from whom it works for."""

    connection_id: int
    correlation_id: int
    sent_ms: int


SelectorEvent: TypeAlias = Connected | Received | Disconnected | Repeated | Dispatched


class PeriodicRequest(NamedTuple):
    """A request that the selector sends again and again by itself, punctually: a heartbeat."""

    frame: bytes
    """Complete, with its size; the correlation id in bytes 8 to 12 is patched at each sending."""
    first_ms: int
    every_ms: int
    until_ms: int
    """Monotonic; at this time or later it is not sent any more."""
    correlation_id: int
    """Of the first sending; each has the next."""


class ClientSelector(Protocol):
    """Connections of a client. All but `wake` are called by one thread."""

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """Begin to connect and return at once; `Connected` or `Disconnected` follows.

        Every address of the host is tried, in turn.
        """
        ...

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        """Queue bytes; they go out in order. The parts must not change afterwards."""
        ...

    def close(self, connection_id: int) -> None:
        """Close a connection and cancel its periodic requests; no event follows."""
        ...

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        """Send a frame regularly from now on; replaces one of the same id."""
        ...

    def cancel(self, periodic_id: int) -> None:
        """End a periodic request; fine if it has ended."""
        ...

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        """Wait for events up to the timeout, or until woken; None waits for as long as it takes."""
        ...

    def wake(self) -> None:
        """Let `poll` return at once, from any thread."""
        ...

    def shutdown(self) -> None:
        """Close everything; again is fine."""
        ...


class _Periodic:
    """A periodic request and when it is due next."""

    __slots__ = ("connection_id", "correlation_id", "due_ms", "request")

    def __init__(self, connection_id: int, request: PeriodicRequest) -> None:
        self.connection_id = connection_id
        self.request = request
        self.due_ms = request.first_ms
        self.correlation_id = request.correlation_id


class _Connecting:
    """Addresses that are still to be tried, and how the ones before went."""

    __slots__ = ("addresses", "failures")

    def __init__(self, addresses: Sequence[SocketAddress]) -> None:
        self.addresses = deque(addresses)
        self.failures: list[str] = []


class SocketSelector:
    """The plain `ClientSelector`: non-blocking sockets on the system's readiness calls.

    A connection is connecting, handshaking, ready; nothing is sent before it is ready.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        open_transport: Callable[[socket.socket], ClientTransport] = PlainTransport,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._frame_bytes_max = frame_bytes_max
        self._open_transport = open_transport
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[int, ClientSocket] = {}
        self._connecting: dict[int, _Connecting] = {}
        """Those that are not ready."""
        self._unread: set[int] = set()
        """Those whose transports have bytes that the system does not tell of."""
        self._resolved: deque[Resolution] = deque()
        self._periodic: dict[int, _Periodic] = {}
        self._events: list[SelectorEvent] = []
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._wake_lock = threading.Lock()
        self._is_woken = False
        self.is_shut_down = False
        """Whether everything is closed."""
        self._selector.register(self._wake_reader, selectors.EVENT_READ, -1)

    def fileno(self) -> int:
        """One descriptor that is ready to be read when `poll` has something to do."""
        return self._selector.fileno()

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """See `ClientSelector`. Names are looked up in a thread of their own; it may take long."""
        addresses = numeric_addresses(host, port)
        self._connecting[connection_id] = _Connecting(addresses or ())
        if addresses is None:
            resolve(connection_id, host, port, self._take_resolution)
        else:
            self._try_next(connection_id)

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        """See `ClientSelector`."""
        connection = self._sockets.get(connection_id)
        if connection is None or connection_id in self._connecting:
            return  # It ended meanwhile: the event tells.
        try:
            had_backlog = connection.has_backlog
            connection.send(parts)
            if connection.has_backlog != had_backlog:
                self._watch(connection_id, connection)
        except SocketClosed as error:
            self._lose(connection_id, str(error))

    def close(self, connection_id: int) -> None:
        """See `ClientSelector`."""
        self._connecting.pop(connection_id, None)
        self._unread.discard(connection_id)
        self._periodic = {
            periodic_id: periodic
            for periodic_id, periodic in self._periodic.items()
            if periodic.connection_id != connection_id
        }
        connection = self._sockets.pop(connection_id, None)
        if connection is not None:
            self._selector.unregister(connection.socket)
            connection.close()

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        """See `ClientSelector`."""
        self._periodic[periodic_id] = _Periodic(connection_id, periodic)

    def cancel(self, periodic_id: int) -> None:
        """See `ClientSelector`."""
        self._periodic.pop(periodic_id, None)

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        """See `ClientSelector`."""
        self._send_due_periodic()
        wait_s = self._wait_s(timeout_ms)
        for ready, readiness in self._selector.select(wait_s):
            if ready.data == -1:
                self._drain_wake()
            elif ready.data in self._connecting:
                self._shake_hands(ready.data)
            else:
                self._serve(ready.data, readiness)
        for connection_id in list(self._unread):
            self._serve(connection_id, selectors.EVENT_READ)
        self._send_due_periodic()
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """See `ClientSelector`."""
        with self._wake_lock:
            if not self._is_woken and not self.is_shut_down:
                self._is_woken = True
                with contextlib.suppress(BlockingIOError):
                    self._wake_writer.send(b"\0")

    def shutdown(self) -> None:
        """See `ClientSelector`."""
        with self._wake_lock:
            if self.is_shut_down:
                return
            self.is_shut_down = True
        for connection_id in list(self._sockets):
            self.close(connection_id)
        self._connecting.clear()
        self._periodic.clear()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _wait_s(self, timeout_ms: int | None) -> float | None:
        if self._events or self._unread:
            return 0
        limits = [each.due_ms - self._clock.monotonic_ms() for each in self._periodic.values()]
        if timeout_ms is not None:
            limits.append(timeout_ms)
        return None if not limits else max(0, min(limits)) / 1000

    def _drain_wake(self) -> None:
        with self._wake_lock:
            self._is_woken = False
            with contextlib.suppress(BlockingIOError):
                while self._wake_reader.recv(4096):
                    pass
        while self._resolved:
            self._begin_connecting(self._resolved.popleft())

    def _take_resolution(self, resolution: Resolution) -> None:
        """Called by the resolving thread."""
        self._resolved.append(resolution)
        self.wake()

    def _begin_connecting(self, resolution: Resolution) -> None:
        connecting = self._connecting.get(resolution.connection_id)
        if connecting is None:
            return  # Closed while the name was looked up.
        connecting.addresses.extend(resolution.addresses)
        connecting.failures += [resolution.failure] if resolution.failure else []
        self._try_next(resolution.connection_id)

    def _try_next(self, connection_id: int) -> None:
        connecting = self._connecting[connection_id]
        while connecting.addresses:
            try:
                connection = ClientSocket(
                    connecting.addresses.popleft(), self._frame_bytes_max, self._open_transport
                )
            except SocketClosed as error:
                connecting.failures.append(str(error))
                continue
            self._sockets[connection_id] = connection
            self._selector.register(connection.socket, selectors.EVENT_WRITE, connection_id)
            return
        del self._connecting[connection_id]
        reason = "; ".join(dict.fromkeys(connecting.failures)) or "the host has no address"
        self._events.append(Disconnected(connection_id, reason))

    def _shake_hands(self, connection_id: int) -> None:
        """The socket is connected, or has something for the handshake, or has failed."""
        connection = self._sockets[connection_id]
        try:
            awaited = connection.shake_hands()
        except SocketClosed as error:
            self._connecting[connection_id].failures.append(str(error))
            del self._sockets[connection_id]
            self._selector.unregister(connection.socket)
            connection.close()
            self._try_next(connection_id)
            return
        if awaited != DONE:
            self._selector.modify(connection.socket, awaited, connection_id)
            return
        del self._connecting[connection_id]
        self._watch(connection_id, connection)
        self._note_unread(connection_id, connection)
        self._events.append(Connected(connection_id))

    def _serve(self, connection_id: int, readiness: int) -> None:
        connection = self._sockets.get(connection_id)
        if connection is None:
            return  # Lost a moment ago, in the same round.
        try:
            if readiness & selectors.EVENT_WRITE:
                connection.flush()
                if not connection.has_backlog:
                    self._watch(connection_id, connection)
            if readiness & selectors.EVENT_READ:
                self._events += [Received(connection_id, each) for each in connection.receive()]
                self._note_unread(connection_id, connection)
        except (SocketClosed, ProtocolError) as error:
            self._events += [Received(connection_id, each) for each in connection.take_frames()]
            self._lose(connection_id, str(error))

    def _note_unread(self, connection_id: int, connection: ClientSocket) -> None:
        if connection.has_unread:
            self._unread.add(connection_id)
        else:
            self._unread.discard(connection_id)

    def _watch(self, connection_id: int, connection: ClientSocket) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.has_backlog else 0)
        self._selector.modify(connection.socket, wanted, connection_id)

    def _lose(self, connection_id: int, reason: str) -> None:
        self.close(connection_id)
        self._events.append(Disconnected(connection_id, reason))

    def _send_due_periodic(self) -> None:
        if not self._periodic:
            return
        now_ms = self._clock.monotonic_ms()
        for periodic_id, each in list(self._periodic.items()):
            if each.due_ms > now_ms:
                continue
            is_ready = (
                each.connection_id in self._sockets and each.connection_id not in self._connecting
            )
            if now_ms >= each.request.until_ms or not is_ready:
                self._periodic.pop(periodic_id, None)
                continue
            self._send_periodic(periodic_id, each, now_ms)

    def _send_periodic(self, periodic_id: int, each: _Periodic, now_ms: int) -> None:
        frame = bytearray(each.request.frame)
        frame[_CORRELATION_ID] = each.correlation_id.to_bytes(4, "big")
        self._events.append(Repeated(each.connection_id, periodic_id, each.correlation_id, now_ms))
        each.correlation_id += 1
        # From when it was due, so that being late once does not delay all that follow; but
        # nothing is made up for after a long sleep.
        each.due_ms = max(each.due_ms + each.request.every_ms, now_ms + 1)
        self.send(each.connection_id, [frame])
