"""A transport that shakes hands, takes and gives few bytes at a time, and buffers."""

from __future__ import annotations

import ctypes
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.clock import SystemClock
from millstream.network.client.selector import (
    Connected,
    Disconnected,
    PeriodicRequest,
    Received,
    Repeated,
)

if not _accel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled selector is not built (make build)", allow_module_level=True)

from millstream.network.client.native_selector import NativeSelector
from tests.unit.accel.test_client_selector import frame_of, receive_exactly, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
KERNEL = Path(__file__).parents[3] / "src/millstream/_accel"
WAIT_MS = 10_000
ROUNDS = 3
REFUSED = b"\xff"


class Fake:
    """The compiled fake, and what it has open."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._name = ctypes.c_char_p(b"millstream.client_transports")
        address = ctypes.addressof(ctypes.c_char.in_dll(self._library, "fake_transports"))
        self.transports: Any = new_capsule(address, self._name, None)

    @property
    def live_sessions(self) -> int:
        return int(self._library.fake_live_sessions())


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Fake:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("fake") / "fake_transport.so"
    command = [compiler, "-shared", "-fPIC", "-I", str(KERNEL), "-o", str(made)]
    subprocess.run([*command, str(HERE / "fake_transport.c")], check=True)
    return Fake(made)


@pytest.fixture
def selector(fake: Fake) -> Iterator[NativeSelector]:
    made = NativeSelector(frame_bytes_max=1 << 20, transports=fake.transports)
    yield made
    made.shutdown()
    assert fake.live_sessions == 0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_MS / 1000)
        yield listening


def flipped(data: bytes) -> bytes:
    return bytes(each ^ 0x55 for each in data)


def accept(server: socket.socket, rounds: int = ROUNDS) -> socket.socket:
    """The peer's end after so many rounds of the handshake."""
    peer, _ = server.accept()
    peer.settimeout(WAIT_MS / 1000)
    for number in range(rounds):
        assert peer.recv(1) == bytes([number])
        peer.sendall(bytes([number]))
    return peer


def connect(selector: NativeSelector, server: socket.socket) -> socket.socket:
    selector.connect(1, *server.getsockname())
    peer = accept(server)
    assert wait_for(selector, 1) == [Connected(1)]
    return peer


def test_nothing_is_told_or_sent_before_the_last_round(
    selector: NativeSelector, server: socket.socket
) -> None:
    selector.connect(1, *server.getsockname())
    with accept(server, ROUNDS - 1) as peer:
        assert peer.recv(1) == bytes([ROUNDS - 1])
        now_ms = SystemClock().monotonic_ms()
        selector.send(1, [frame_of(b"too early")])
        selector.repeat(1, 7, PeriodicRequest(bytes(12), now_ms, 1, now_ms + 100_000, 5))
        assert selector.poll(0) == []

        peer.sendall(bytes([ROUNDS - 1]))

        assert wait_for(selector, 1) == [Connected(1)]
        selector.send(1, [frame_of(b"in time")])
        assert receive_exactly(peer, 11) == flipped(frame_of(b"in time"))


def test_frames_come_whole_through_short_reads_and_writes(
    selector: NativeSelector, server: socket.socket
) -> None:
    bodies = [bytes([number]) * (1 + 97 * number) for number in range(20)]
    with connect(selector, server) as peer:
        for body in bodies:
            selector.send(1, [frame_of(body)])
        sent = b"".join(map(frame_of, bodies))
        assert receive_exactly(peer, len(sent)) == flipped(sent)

        peer.sendall(flipped(sent))  # More reads than one connection has in its turn.

        events = wait_for(selector, len(bodies))
    received = [bytes(each.frame) for each in events if isinstance(each, Received)]
    assert received == bodies


def test_a_large_frame_does_not_wait_for_bytes_that_are_buffered(
    selector: NativeSelector, server: socket.socket
) -> None:
    body = bytes(range(256)) * 1024
    with connect(selector, server) as peer:
        peer.sendall(flipped(frame_of(body)))
        [event] = wait_for(selector, 1)
    assert isinstance(event, Received)
    assert bytes(event.frame) == body


def test_what_is_buffered_while_poll_is_late_is_received_later(
    fake: Fake, server: socket.socket
) -> None:
    body = b"x" * 60
    selector = NativeSelector(transports=fake.transports, received_bytes_max=1)
    try:
        with connect(selector, server) as peer:
            peer.sendall(flipped(frame_of(body)) * 50)
            received = 0
            while received < 50:
                received += len(wait_for(selector, 1))
    finally:
        selector.shutdown()


def test_periodic_requests_go_through_it(selector: NativeSelector, server: socket.socket) -> None:
    with connect(selector, server) as peer:
        now_ms = SystemClock().monotonic_ms()
        selector.repeat(1, 7, PeriodicRequest(bytes(12), now_ms, 100_000, now_ms + 100_000, 5))
        assert isinstance(wait_for(selector, 1)[0], Repeated)
        assert receive_exactly(peer, 12) == flipped(bytes(8) + (5).to_bytes(4, "big"))


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_handshake_that_fails_ends_the_connection(
    selector: NativeSelector, server: socket.socket, fake: Fake, rounds: int
) -> None:
    selector.connect(1, *server.getsockname())
    with accept(server, rounds) as peer:
        peer.sendall(REFUSED)
        assert wait_for(selector, 1) == [Disconnected(1, "Protocol error")]
    assert fake.live_sessions == 0


def test_a_connection_may_be_closed_while_it_shakes_hands(
    selector: NativeSelector, server: socket.socket
) -> None:
    selector.connect(1, *server.getsockname())
    with accept(server, 1) as peer:
        selector.close(1)
        assert peer.recv(1) in {b"", b"\x01"}
    assert selector.poll(0) == []


def test_only_the_right_capsule_is_taken() -> None:
    with pytest.raises((TypeError, ValueError)):
        NativeSelector(transports=object())
