"""The client's end of simulated connections: a `ClientSelector` on a virtual event loop."""

from __future__ import annotations

from errno import ECONNREFUSED, ECONNRESET
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import ProtocolError
from millstream.network.client.client_socket import CLOSED_BY_BROKER, describe_errno
from millstream.network.client.selector import (
    FRAME_BYTES_MAX,
    Connected,
    Disconnected,
    Received,
    Repeated,
)
from millstream.protocol.frame import FrameDecoder

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from millstream.network.client.selector import PeriodicRequest, SelectorEvent
    from millstream.testing.simulation.network import SimNetwork
    from millstream.testing.simulation.sockets import SimSocket
    from millstream.types import ReadableBuffer


class _Link:
    """A connection and the frames that come on it."""

    __slots__ = ("frames", "is_ready", "socket")

    def __init__(self, sock: SimSocket) -> None:
        self.socket = sock
        self.frames = FrameDecoder(frame_bytes_max=FRAME_BYTES_MAX)
        self.is_ready = False


class SimSelector:
    """Connections of one simulated process to others."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: SimNetwork,
        host: str,
        on_ready: Callable[[], None],
    ) -> None:
        """`host`: the machine it is on. `on_ready` is called when `poll` has something."""
        self._loop = loop
        self._network = network
        self._host = host
        self._on_ready = on_ready
        self._links: dict[int, _Link] = {}
        self._periodic: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._events: list[SelectorEvent] = []
        self._is_ready_due = False
        self._is_shut_down = False

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """See `ClientSelector`."""
        sock = self._network.connect(self._host, (host, port))
        self._links[connection_id] = _Link(sock)
        sock.watch(partial(self._news, connection_id))

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        """See `ClientSelector`."""
        link = self._links.get(connection_id)
        if link is None or not link.is_ready or link.socket.is_reset:
            return  # It ended meanwhile: the event tells.
        link.socket.send(b"".join(parts))

    def close(self, connection_id: int) -> None:
        """See `ClientSelector`."""
        for periodic_id, (owner, _) in list(self._periodic.items()):
            if owner == connection_id:
                self.cancel(periodic_id)
        link = self._links.pop(connection_id, None)
        if link is not None:
            link.socket.watch(None)
            link.socket.close()

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        """See `ClientSelector`."""
        self.cancel(periodic_id)
        self._repeat_at(
            connection_id, periodic_id, periodic, periodic.first_ms, periodic.correlation_id
        )

    def cancel(self, periodic_id: int) -> None:
        """See `ClientSelector`."""
        _, handle = self._periodic.pop(periodic_id, (0, None))
        if handle is not None:
            handle.cancel()

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        """See `ClientSelector`: it never waits, `on_ready` tells."""
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """See `ClientSelector`."""
        self._be_ready()

    def shutdown(self) -> None:
        """See `ClientSelector`."""
        self._is_shut_down = True
        for connection_id in list(self._links):
            self.close(connection_id)
        self._events.clear()

    # What the network tells.

    def _news(self, connection_id: int) -> None:
        link = self._links[connection_id]
        sock = link.socket
        if sock.is_connected and not link.is_ready:
            link.is_ready = True
            self._events.append(Connected(connection_id))
        try:
            while sock.inbox:
                for frame in link.frames.feed(sock.inbox.popleft()):
                    self._events.append(Received(connection_id, frame))
        except ProtocolError as error:
            self._lose(connection_id, str(error))
        else:
            if sock.is_reset:
                code = ECONNRESET if link.is_ready else ECONNREFUSED
                self._lose(connection_id, describe_errno(code))
            elif sock.is_ended:
                self._lose(connection_id, CLOSED_BY_BROKER)
        self._be_ready()

    def _lose(self, connection_id: int, reason: str) -> None:
        self.close(connection_id)
        self._events.append(Disconnected(connection_id, reason))

    def _be_ready(self) -> None:
        if not self._is_ready_due and not self._is_shut_down:
            self._is_ready_due = True
            self._loop.call_soon(self._ready)

    def _ready(self) -> None:
        self._is_ready_due = False
        if not self._is_shut_down:
            self._on_ready()

    # Periodic requests.

    def _repeat_at(
        self,
        connection_id: int,
        periodic_id: int,
        periodic: PeriodicRequest,
        due_ms: int,
        correlation_id: int,
    ) -> None:
        handle = self._loop.call_at(
            due_ms / 1000,
            partial(self._repeat_due, connection_id, periodic_id, periodic, due_ms, correlation_id),
        )
        self._periodic[periodic_id] = (connection_id, handle)

    def _repeat_due(
        self,
        connection_id: int,
        periodic_id: int,
        periodic: PeriodicRequest,
        due_ms: int,
        correlation_id: int,
    ) -> None:
        del self._periodic[periodic_id]
        now_ms = round(self._loop.time() * 1000)
        link = self._links.get(connection_id)
        if link is None or not link.is_ready or now_ms >= periodic.until_ms:
            return
        frame = bytearray(periodic.frame)
        frame[8:12] = correlation_id.to_bytes(4, "big")
        self._events.append(Repeated(connection_id, periodic_id, correlation_id, now_ms))
        self.send(connection_id, [frame])
        next_ms = max(due_ms + periodic.every_ms, now_ms + 1)
        self._repeat_at(connection_id, periodic_id, periodic, next_ms, correlation_id + 1)
        self._be_ready()
