"""Large regions of real files over real sockets: in order, whatever is cut, at no pace."""

from __future__ import annotations

import errno
import random
import socket
import struct
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.network.server import senders
from millstream.network.server.senders import SocketSender
from millstream.storage.disk import DiskFileSystem
from millstream.storage.filesystem import FileSlice
from tests.unit.network.test_senders import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Loop:
    """Calls whoever waits until a socket is writable."""

    def __init__(self) -> None:
        self.writers: dict[int, Callable[[], object]] = {}

    def add_writer(self, descriptor: int, callback: Callable[[], object]) -> None:
        """As the loop's."""
        self.writers[descriptor] = callback

    def remove_writer(self, descriptor: int) -> None:
        """As the loop's."""
        del self.writers[descriptor]


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection; the first does not block, and the kernel holds little of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
    with closing(client), closing(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        sock.setblocking(False)
        yield sock, client


@pytest.fixture(params=["compiled", "python"])
def region(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[FileSlice]:
    """A large region of a real file, sent in both ways."""
    if request.param == "python":
        monkeypatch.setattr(senders, "_send_region", None)
    elif senders._send_region is None:
        pytest.skip("it was not built")
    path = tmp_path / "log"
    path.write_bytes(random.Random(2).randbytes(1_000_100))
    file = DiskFileSystem().open(str(path))
    yield FileSlice(file, 100, 1_000_000)
    file.close()


def test_a_large_region_arrives_between_its_neighbours(region: FileSlice) -> None:
    owner, loop = Owner(), Loop()
    with connected() as (sock, client):
        sender = SocketSender(owner, cast("Any", loop), sock)

        sender.send_parts([b"head", region, b"tail"])
        received = bytearray()
        while len(received) < 1_000_008:
            received += client.recv(100_000)
            for callback in [*loop.writers.values()]:
                callback()

        assert received == b"head" + region.read() + b"tail"
        assert owner.state.bytes_out == 1_000_008
        assert not sender.is_blocked
        assert owner.errors == []


def test_a_region_that_ends_too_early_breaks_the_connection(region: FileSlice) -> None:
    owner, loop = Owner(), Loop()
    region.file.truncate(20_000)
    with connected() as (sock, client):
        sender = SocketSender(owner, cast("Any", loop), sock)

        sender.send_parts([b"head", region, b"tail"])
        while not owner.errors:
            client.recv(100_000)
            for callback in [*loop.writers.values()]:
                callback()

        assert owner.errors[0].errno == errno.EIO
        sender.close()


def test_a_peer_that_is_gone_is_noticed(region: FileSlice) -> None:
    owner, loop = Owner(), Loop()
    with connected() as (sock, client):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        sender = SocketSender(owner, cast("Any", loop), sock)

        while not owner.errors:
            sender.send_parts([b"head", region, b"tail"])
            for callback in [*loop.writers.values()]:
                callback()

        assert isinstance(owner.errors[0], ConnectionError)
        sender.close()


def congestion_control(sock: socket.socket, *chosen: bytes) -> bytes:
    """How a socket avoids congestion; with a name, from now on."""
    for name in chosen:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="Linux has the choice")
@pytest.mark.parametrize(("before", "after"), [(b"bbr", b"reno"), (b"reno", b"reno")])
def test_nothing_is_sent_at_a_pace_within_one_machine(before: bytes, after: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
    with closing(client), closing(sock):
        try:
            congestion_control(sock, before)
        except OSError:
            pytest.skip(f"this machine has no {before.decode()}")

        SocketSender(Owner(), cast("Any", None), sock)

        assert congestion_control(sock) == after
