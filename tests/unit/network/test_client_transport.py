"""The plain selector on a transport that shakes hands, takes and gives few bytes, and buffers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from millstream.network.client.selector import (
    Connected,
    Disconnected,
    PeriodicRequest,
    Received,
    SocketSelector,
)
from millstream.network.client.transport import DONE, READS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.network.client.selector import SelectorEvent
    from millstream.types import ReadableBuffer

ROUNDS = 3
WAIT_MS = 10_000


def flipped(data: bytes) -> bytes:
    return bytes(each ^ 0x55 for each in data)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class FakeTransport:
    """Asks for a byte in each round; then flips all bytes, takes 5 and gives 7 at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._round = 0
        self._is_asked = False
        self._bytes = b""

    @property
    def has_buffered(self) -> bool:
        return bool(self._bytes)

    def shake_hands(self) -> int:
        while self._round < ROUNDS:
            if not self._is_asked:
                self._socket.send(bytes([self._round]))
                self._is_asked = True
            try:
                answer = self._socket.recv(1)
            except BlockingIOError:
                return READS
            if answer != bytes([self._round]):
                raise OSError("the handshake failed")
            self._is_asked = False
            self._round += 1
        return DONE

    def receive(self, size: int) -> bytes:
        if not self._bytes:
            self._bytes = self._socket.recv(64)
        given, self._bytes = self._bytes[: min(size, 7)], self._bytes[min(size, 7) :]
        return flipped(given)

    def receive_into(self, room: memoryview) -> int:
        given = self.receive(len(room))
        room[: len(given)] = given
        return len(given)

    def send(self, parts: Sequence[ReadableBuffer]) -> int:
        return self._socket.send(flipped(bytes(parts[0])[:5]))


@pytest.fixture
def selector() -> Iterator[SocketSelector]:
    made = SocketSelector(open_transport=FakeTransport)
    yield made
    made.shutdown()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_MS / 1000)
        yield listening


def answer_rounds(selector: SocketSelector, server: socket.socket, rounds: int) -> socket.socket:
    """The peer's end after so many rounds, none of which tells anything."""
    selector.connect(1, *server.getsockname())
    assert selector.poll(WAIT_MS) == []
    peer, _ = server.accept()
    peer.settimeout(WAIT_MS / 1000)
    for number in range(rounds):
        assert peer.recv(1) == bytes([number])
        peer.sendall(bytes([number]))
        if number < ROUNDS - 1:
            assert selector.poll(WAIT_MS) == []
    return peer


def until(selector: SocketSelector, count: int) -> list[SelectorEvent]:
    events: list[SelectorEvent] = []
    while len(events) < count:
        events += selector.poll(WAIT_MS)
    return events


def read(peer: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += peer.recv(size - len(received))
    return received


def test_nothing_is_told_or_sent_before_the_last_round(
    selector: SocketSelector, server: socket.socket
) -> None:
    with answer_rounds(selector, server, ROUNDS - 1) as peer:
        assert peer.recv(1) == bytes([ROUNDS - 1])
        selector.send(1, [framed(b"too early")])
        selector.repeat(1, 7, PeriodicRequest(bytes(12), 0, 1, 1 << 60, 5))
        assert selector.poll(0) == []

        peer.sendall(bytes([ROUNDS - 1]))

        assert until(selector, 1) == [Connected(1)]
        selector.send(1, [framed(b"in time")])
        selector.poll(0)
        selector.poll(0)
        assert read(peer, 11) == flipped(framed(b"in time"))


def test_frames_come_whole_through_short_reads_and_writes(
    selector: SocketSelector, server: socket.socket
) -> None:
    bodies = [bytes([number]) * (1 + 97 * number) for number in range(20)]
    sent = b"".join(map(framed, bodies))
    with answer_rounds(selector, server, ROUNDS) as peer:
        assert until(selector, 1) == [Connected(1)]
        selector.send(1, [framed(body) for body in bodies])
        assert read(peer, len(sent)) == flipped(sent)

        peer.sendall(flipped(sent))

        events = until(selector, len(bodies))
    assert [bytes(each.frame) for each in events if isinstance(each, Received)] == bodies


def test_a_handshake_that_fails_ends_the_connection(
    selector: SocketSelector, server: socket.socket
) -> None:
    with answer_rounds(selector, server, 1) as peer:
        peer.sendall(b"\xff")
        assert until(selector, 1) == [Disconnected(1, "the handshake failed")]
