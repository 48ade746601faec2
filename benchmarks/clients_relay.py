"""A relay before a broker that notes when each request arrived, by the kernel's clock.

`clients_punctual` runs it in a process of its own. The kernel stamps what comes in on loopback when
it is sent (SO_TIMESTAMPNS), so a relay that wakes up late does not make the sender seem late. What
it reads at once has the time of the last of it: no request ever seems to be earlier than it was.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.broker_processes import HOST

SO_TIMESTAMPNS: Final = 35
"""Of Linux; the socket module does not name it."""
_STAMP: Final = struct.Struct("@qq")
_CHUNK: Final = 1 << 16
_CLIENT_ID_AT: Final = 8

Arrival = tuple[int, str, float]
"""The API key of a request, the client id of its sender, and the time."""


def now() -> float:
    """The time by the clock of the stamps, which is one for all processes."""
    return time.clock_gettime(time.CLOCK_REALTIME)


@dataclass(slots=True)
class Pair:
    """One end of a relayed connection: what it reads goes to the other."""

    source: socket.socket
    target: socket.socket
    arrivals: list[Arrival] | None
    """None of a broker's answers, which nobody asks about."""
    pending: bytearray = field(default_factory=bytearray)

    def pass_on(self) -> bool:
        """What has come; False when there is an end of it."""
        try:
            data, notes, _flags, _peer = self.source.recvmsg(_CHUNK, socket.CMSG_SPACE(_STAMP.size))
            self.target.sendall(data)
        except OSError:
            return False
        if self.arrivals is not None and data:
            self.pending += data
            self._note(_stamp(notes))
        return bool(data)

    def _note(self, at: float) -> None:
        assert self.arrivals is not None
        while len(self.pending) >= 4:
            end = 4 + int.from_bytes(self.pending[:4], "big")
            if len(self.pending) < end:
                return
            self.arrivals.append((*_header(self.pending[4:end]), at))
            del self.pending[:end]


def _stamp(notes: list[tuple[int, int, bytes]]) -> float:
    """When it was sent; the kernel begins to say so a moment after the first socket asks for it."""
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _STAMP.unpack(data)
            return float(seconds + nanoseconds / 1e9)
    return now()


def _header(frame: bytearray) -> tuple[int, str]:
    """The API key and the client id, which stand in the same place in every version."""
    size = int.from_bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + 2], "big")
    start = _CLIENT_ID_AT + 2
    return int.from_bytes(frame[:2], "big"), frame[start : start + size].decode()


def relay(port: int, broker_port: int) -> None:
    """Pass bytes on both ways until standard input ends; a line of it asks for the arrivals."""
    arrivals: list[Arrival] = []
    with (
        selectors.DefaultSelector() as selector,
        socket.create_server((HOST, port)) as server,
    ):
        # What is accepted inherits the option, so that not even the first request lacks its stamp.
        server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        selector.register(server, selectors.EVENT_READ, None)
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                if key.fd == sys.stdin.fileno():
                    if not sys.stdin.readline():
                        return
                    print(json.dumps(arrivals), flush=True)
                    arrivals.clear()
                elif key.fileobj is server:
                    _accept(selector, server, broker_port, arrivals)
                elif not key.data.pass_on():
                    _part(selector, key.data)


def _accept(
    selector: selectors.BaseSelector,
    server: socket.socket,
    broker_port: int,
    arrivals: list[Arrival],
) -> None:
    outer, _ = server.accept()
    inner = socket.create_connection((HOST, broker_port))
    for end in (outer, inner):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    selector.register(outer, selectors.EVENT_READ, Pair(outer, inner, arrivals))
    selector.register(inner, selectors.EVENT_READ, Pair(inner, outer, None))


def _part(selector: selectors.BaseSelector, pair: Pair) -> None:
    for end in (pair.source, pair.target):
        if end.fileno() >= 0:
            selector.unregister(end)
            end.close()


def main() -> None:
    """Be the relay."""
    relay(int(sys.argv[1]), int(sys.argv[2]))
