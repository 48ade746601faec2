"""The two ends of simulated connections, and the sockets that listen for them.

A `SimSocket` is as much of a socket as the broker's acceptor and its transports use; it has no
descriptor. What it sends goes through a `SimNetwork`, which decides when and whether it arrives.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.testing.simulation.network import SimNetwork
    from millstream.types import ReadableBuffer

_NO_DESCRIPTOR = -1


class SimSocket:
    """One end of a connection."""

    __slots__ = (
        "_network",
        "_notify",
        "arrives_us",
        "host",
        "inbox",
        "is_closed",
        "is_connected",
        "is_ended",
        "is_reset",
        "local",
        "peer",
        "remote",
        "under_way",
    )

    def __init__(
        self, network: SimNetwork, host: str, local: tuple[str, int], remote: tuple[str, int]
    ) -> None:
        self._network = network
        self._notify: Callable[[], object] | None = None
        self.host = host
        """The machine it is on."""
        self.local = local
        self.remote = remote
        self.peer: SimSocket | None = None
        self.inbox: deque[bytes] = deque()
        self.arrives_us = 0
        """When the last that was sent to it arrives: the rest cannot be sooner."""
        self.under_way: deque[Callable[[], None]] = deque()
        """What was sent to it, in order. The network's."""
        self.is_connected = False
        self.is_ended = False
        """The peer will send no more."""
        self.is_reset = False
        self.is_closed = False

    def watch(self, notify: Callable[[], object] | None) -> None:
        """Call something whenever something has come; at once if something is there."""
        self._notify = notify
        if notify is not None and (self.inbox or self.is_ended or self.is_reset):
            notify()

    def news(self) -> None:
        """Something has come. The network calls it."""
        if self._notify is not None:
            self._notify()

    def send(self, data: ReadableBuffer) -> int:
        """Send all of it: the network has room."""
        if self.is_reset or self.is_closed:
            raise ConnectionResetError("the connection was reset")
        self._network.send(self, bytes(data))
        return len(data)

    def shutdown(self) -> None:
        """Say that no more will be sent."""
        self._network.end(self)

    def close(self) -> None:
        """Let go of it; again is fine."""
        if not self.is_closed:
            self._network.close(self)

    # What a socket is asked for when it was accepted.

    def fileno(self) -> int:
        """There is no descriptor."""
        return _NO_DESCRIPTOR

    def getsockname(self) -> tuple[str, int]:
        """Its own address."""
        return self.local

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """It has no options."""


class SimListener:
    """A socket that listens. Connections wait in it until they are accepted."""

    __slots__ = ("_network", "_notify", "address", "host", "waiting")

    def __init__(self, network: SimNetwork, host: str, address: tuple[str, int]) -> None:
        self._network = network
        self._notify: Callable[[], object] | None = None
        self.host = host
        self.address = address
        self.waiting: deque[SimSocket] = deque()

    def watch(self, notify: Callable[[], object] | None) -> None:
        """Call something when a connection waits."""
        self._notify = notify
        if notify is not None and self.waiting:
            notify()

    def offer(self, connected: SimSocket) -> None:
        """A connection was made."""
        self.waiting.append(connected)
        if self._notify is not None:
            self._notify()

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        """Take the connection that waits for longest."""
        if not self.waiting:
            raise BlockingIOError
        connected = self.waiting.popleft()
        return connected, connected.remote

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return self.address

    def fileno(self) -> int:
        """There is no descriptor."""
        return _NO_DESCRIPTOR

    def close(self) -> None:
        """Listen no more; those who wait are turned away."""
        self._network.unlisten(self)
        while self.waiting:
            self.waiting.popleft().close()
