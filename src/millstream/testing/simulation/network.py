"""A network of simulated machines: byte streams that are late, cut, reset or forgotten by one end.

Bytes of one connection arrive in order. What is sent while the way is cut waits for the way to be
mended, as the retransmissions of TCP do; whoever waits too long gives up by itself. A machine that
lost its power forgets its connections without telling anybody: the other end finds out when it
sends something, once the machine is back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.testing.simulation.sockets import SimListener, SimSocket

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.testing.simulation.schedule import Schedule

_FIRST_PORT: Final = 40_000
_DELAY_US: Final = (50, 800)
"""How long a packet is under way, usually."""
_SENT_AGAIN_MAX_US: Final = 4_000_000
"""How long it takes until what was lost is sent again."""


class SimNetwork:
    """All machines and what is between them. A machine is known by its host name."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._sockets: dict[str, dict[SimSocket, None]] = {}
        """The open ones by machine; a dict keeps the order."""
        self._down: dict[str, list[tuple[str, SimSocket]]] = {}
        """Machines without power, and what was sent to them meanwhile: from where, for whom."""
        self._cuts: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], list[SimSocket]] = {}
        """For each cut way, the sockets that something waits for, once for each thing."""
        self._slow: dict[tuple[str, str], int] = {}
        self._ports = _FIRST_PORT
        self.bytes_sent = 0

    # Machines.

    def listen(self, host: str, address: tuple[str, int]) -> SimListener:
        """Begin to listen; the address must be free."""
        port = address[1] or self._next_port()
        where = (host, port)
        if where in self._listeners:
            raise OSError(f"{host}:{port} is in use")
        listener = self._listeners[where] = SimListener(self, host, (address[0] or host, port))
        return listener

    def unlisten(self, listener: SimListener) -> None:
        """Listen no more."""
        self._listeners.pop((listener.host, listener.address[1]), None)

    def process_died(self, host: str) -> None:
        """The machine closes what its process had open."""
        for listener in [each for each in self._listeners.values() if each.host == host]:
            listener.close()
        for sock in list(self._sockets.get(host, {})):
            sock.watch(None)
            sock.close()

    def power_lost(self, host: str) -> None:
        """The machine is gone, and says nothing to anybody."""
        self._down[host] = []
        for listener in [each for each in self._listeners.values() if each.host == host]:
            self.unlisten(listener)
        for sock in self._sockets.pop(host, {}):
            sock.watch(None)
            sock.is_closed = True

    def power_returned(self, host: str) -> None:
        """The machine is back, and knows nothing of its connections.

        What was sent to it is sent again, sooner or later.
        """
        for source, sock in self._down.pop(host, []):
            self._schedule.after(
                self._random.randrange(_SENT_AGAIN_MAX_US), partial(self._arrive, source, sock)
            )

    # Ways.

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one machine to another."""
        self._cuts.add((source, target))

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing comes through."""
        return (source, target) in self._cuts

    def slow_down(self, source: str, target: str, delay_us: int) -> None:
        """Let everything from one machine to another take so much longer."""
        self._slow[source, target] = delay_us

    def mend(self, source: str, target: str) -> None:
        """Let everything through again, at its usual speed; what waited arrives soon."""
        self._slow.pop((source, target), None)
        self._cuts.discard((source, target))
        for sock in self._held.pop((source, target), []):
            self._move(source, sock)

    def mend_all(self) -> None:
        """Mend every way."""
        for way in sorted({*self._cuts, *self._held, *self._slow}):
            self.mend(*way)

    # Connections.

    def connect(self, host: str, address: tuple[str, int]) -> SimSocket:
        """Begin to connect; the socket tells when it is connected or reset."""
        sock = SimSocket(self, host, (host, self._next_port()), address)
        sock.peer = SimSocket(self, address[0], address, sock.local)
        sock.peer.peer = sock
        self._sockets.setdefault(host, {})[sock] = None
        self._transmit(host, sock.peer, partial(self._knock, sock, sock.peer))
        return sock

    def send(self, sock: SimSocket, data: bytes) -> None:
        """Bring bytes to the other end."""
        self.bytes_sent += len(data)
        if sock.peer is not None:
            self._transmit(sock.host, sock.peer, partial(self._deliver, sock.peer, data))

    def end(self, sock: SimSocket) -> None:
        """Tell the other end that no more comes."""
        if sock.peer is not None:
            self._transmit(sock.host, sock.peer, partial(_tell_end, sock.peer))

    def close(self, sock: SimSocket) -> None:
        """Close one end: the other sees the end of the stream, or is reset if bytes are lost."""
        sock.is_closed = True
        self._sockets.get(sock.host, {}).pop(sock, None)
        peer = sock.peer
        if peer is not None and not peer.is_closed:
            tell = _tell_reset if sock.inbox else _tell_end
            self._transmit(sock.host, peer, partial(tell, peer))

    def connections(self) -> list[SimSocket]:
        """One end of each connection that stands."""
        return [
            sock
            for sockets in self._sockets.values()
            for sock in sockets
            if sock.is_connected and sock.local < sock.remote
        ]

    def reset(self, sock: SimSocket) -> None:
        """Break a connection: each end hears of it at its own time."""
        for end in (sock, sock.peer):
            if end is not None and not end.is_closed:
                self._schedule.after(self._delay_us(), partial(_tell_reset, end))

    # What happens under way.

    def _transmit(self, source: str, sock: SimSocket, deliver: Callable[[], None]) -> None:
        """Let something arrive at a socket, after what was sent to it before."""
        sock.under_way.append(deliver)
        self._move(source, sock)

    def _move(self, source: str, sock: SimSocket) -> None:
        delay_us = self._delay_us() + self._slow.get((source, sock.host), 0)
        sock.arrives_us = max(sock.arrives_us + 1, self._schedule.now_us + delay_us)
        self._schedule.at(sock.arrives_us, partial(self._arrive, source, sock))

    def _arrive(self, source: str, sock: SimSocket) -> None:
        """What is first in the line of a socket has come, unless the way is cut."""
        if (source, sock.host) in self._cuts:
            self._held.setdefault((source, sock.host), []).append(sock)
        elif sock.host in self._down:
            self._down[sock.host].append((source, sock))
        else:
            sock.under_way.popleft()()

    def _delay_us(self) -> int:
        low, high = _DELAY_US
        return low + int(self._random.random() ** 3 * (high - low))

    def _knock(self, sock: SimSocket, other: SimSocket) -> None:
        """Somebody wants to connect."""
        listener = self._listeners.get(sock.remote)
        if listener is None:
            other.is_closed = True
            self._transmit(other.host, sock, partial(_tell_reset, sock))
            return
        other.is_connected = True
        self._sockets.setdefault(other.host, {})[other] = None
        listener.offer(other)
        self._transmit(other.host, sock, partial(_tell_connected, sock))

    def _deliver(self, sock: SimSocket, data: bytes) -> None:
        if not sock.is_closed:
            sock.inbox.append(data)
            sock.news()
        elif sock.peer is not None:
            # Nobody knows of this connection here any more.
            self._transmit(sock.host, sock.peer, partial(_tell_reset, sock.peer))

    def _next_port(self) -> int:
        self._ports += 1
        return self._ports


def _tell_connected(sock: SimSocket) -> None:
    if not sock.is_closed:
        sock.is_connected = True
        sock.news()


def _tell_end(sock: SimSocket) -> None:
    if not sock.is_closed:
        sock.is_ended = True
        sock.news()


def _tell_reset(sock: SimSocket) -> None:
    if not sock.is_closed:
        sock.is_reset = True
        sock.news()
