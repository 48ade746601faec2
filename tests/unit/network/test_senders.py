"""Output in order whatever the kernel takes: partial sends, full buffers, files, resets."""

from __future__ import annotations

import errno
import random
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.network.server import senders
from millstream.network.server.connection_state import ConnectionState
from millstream.network.server.senders import SocketSender, TransportSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.server.request import ResponsePart


class Owner:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.state = ConnectionState()
        self.drained = 0
        self.errors: list[OSError] = []

    def output_drained(self) -> None:
        """Count."""
        self.drained += 1

    def output_lost(self, error: OSError) -> None:
        """Remember."""
        self.errors.append(error)


class Kernel:
    """A socket, its descriptor, `sendfile` and a loop, which take as much as the test allows."""

    family = socket.AF_UNIX

    def __init__(self) -> None:
        self.taken = bytearray()
        self.room = 0
        self.error: OSError | None = None
        self.sendfile_error: OSError | None = None
        self.sendfile_calls = 0
        self.sends: list[bytes] = []
        self.has_descriptors = True
        self.writer: Callable[[], object] | None = None
        self.files: dict[int, bytes] = {}

    def send(self, data: Any, flags: int = 0) -> int:
        """As `socket.send`."""
        self.sends.append(bytes(data))
        return self._take(bytes(data))

    def sendmsg(self, buffers: list[Any], _: object = (), flags: int = 0) -> int:
        """As `socket.sendmsg`."""
        return self.send(b"".join(bytes(each) for each in buffers), flags)

    def fileno(self) -> int:
        """As `socket.fileno`."""
        return 7

    def sendfile(self, out: int, source: int, position: int, count: int) -> int:
        """As `os.sendfile`."""
        assert out == 7
        self.sendfile_calls += 1
        if self.sendfile_error is not None:
            raise self.sendfile_error
        data = self.files[source][position : position + count]
        return self._take(data) if data else 0

    def dup(self, descriptor: int) -> int:
        """As `os.dup`."""
        if not self.has_descriptors:
            raise OSError(errno.EMFILE, "too many open files")
        return descriptor + 1

    def _take(self, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        if not self.room:
            raise BlockingIOError
        count = min(self.room, len(data))
        self.room -= count
        self.taken += data[:count]
        return count

    def add_writer(self, descriptor: int, callback: Callable[[], object]) -> None:
        """As the loop's."""
        assert self.writer is None
        self.writer = callback

    def remove_writer(self, descriptor: int) -> None:
        """As the loop's."""
        self.writer = None

    def become_writable(self, room: int) -> None:
        """The peer took something."""
        self.room = room
        assert self.writer is not None
        self.writer()


class Region:
    """A part of one of the kernel's files."""

    def __init__(self, kernel: Kernel, data: bytes, *, has_descriptor: bool = True) -> None:
        self._kernel = kernel
        self._number = len(kernel.files) + 100
        self._has_descriptor = has_descriptor
        kernel.files[self._number] = b"before" + data
        self.position = 6
        self.length = len(data)

    def fileno(self) -> int:
        """Its number."""
        return self._number if self._has_descriptor else -1

    def read(self) -> bytes:
        """Its bytes, as many as are there."""
        return self._kernel.files[self._number][self.position : self.position + self.length]

    def cut(self, count: int) -> None:
        """Somebody truncated the file."""
        self._kernel.files[self._number] = self._kernel.files[self._number][: 6 + count]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Stands in for the operating system."""
    kernel = Kernel()
    system = SimpleNamespace(sendfile=kernel.sendfile, dup=kernel.dup, close=lambda _: None)
    monkeypatch.setattr(senders, "os", system)
    monkeypatch.setattr(senders, "_send_region", None)
    return kernel


def make(kernel: Kernel) -> tuple[SocketSender, Owner]:
    """A sender on that kernel."""
    owner = Owner()
    return SocketSender(owner, cast("Any", kernel), cast("Any", kernel)), owner


def parts_of_every_kind(kernel: Kernel) -> tuple[list[ResponsePart], bytes]:
    """Bytes and files, small and large, and what they are together."""
    source = random.Random(1)
    whole = b""
    parts: list[ResponsePart] = []
    for size in (0, 3, 70_000, 40_000, 5, 133_000, 300_000, 1, 20_000):
        data = source.randbytes(size)
        whole += data + data + data + data
        parts += [data, memoryview(data), Region(kernel, data)]
        parts.append(Region(kernel, data, has_descriptor=False))
    return parts, whole


@pytest.mark.parametrize("room", [10_000_000, 65_536, 7_919])
def test_everything_arrives_once_and_in_order(kernel: Kernel, room: int) -> None:
    sender, owner = make(kernel)
    parts, whole = parts_of_every_kind(kernel)

    sender.send_parts(parts)
    while sender.is_blocked:
        kernel.become_writable(room)

    assert bytes(kernel.taken) == whole
    assert owner.state.bytes_out == len(whole)
    assert owner.state.unsent_bytes == 0
    assert kernel.writer is None
    assert owner.errors == []
    assert owner.drained > 0


def test_what_comes_while_it_is_blocked_waits_its_turn(kernel: Kernel) -> None:
    sender, owner = make(kernel)
    kernel.room = 3

    sender.send(b"abcdef")
    sender.send(b"ghi")
    sender.send_parts([b"j", b"kl"])
    assert owner.state.unsent_bytes == 9
    kernel.become_writable(100)

    assert bytes(kernel.taken) == b"abcdefghijkl"
    assert not sender.is_blocked


def test_small_pieces_leave_together(kernel: Kernel) -> None:
    sender, _ = make(kernel)
    kernel.room = 1000

    sender.send_parts([b"head", Region(kernel, b"x" * 100), b"tail"])

    assert kernel.sends == [b"head" + b"x" * 100 + b"tail"]
    assert kernel.sendfile_calls == 0


def test_the_rest_of_a_region_is_not_kept_in_memory_for_a_slow_peer(kernel: Kernel) -> None:
    sender, _ = make(kernel)
    data = random.Random(3).randbytes(60_000)
    kernel.room = 20_000

    sender.send_parts([b"head", Region(kernel, data), b"tail"])
    assert kernel.sendfile_calls == 1
    kernel.become_writable(100_000)

    assert bytes(kernel.taken) == b"head" + data + b"tail"
    assert kernel.sends[1:] == [b"tail"]


def test_a_large_region_that_only_can_be_read_is_read_once(kernel: Kernel) -> None:
    sender, _ = make(kernel)
    data = random.Random(4).randbytes(500_000)
    region = Region(kernel, data, has_descriptor=False)
    kernel.room = 20_000

    sender.send_parts([b"head", region, b"tail"])
    region.cut(0)
    while sender.is_blocked:
        kernel.become_writable(70_000)

    assert bytes(kernel.taken) == b"head" + data + b"tail"


def test_too_much_waiting_output_is_congestion(kernel: Kernel) -> None:
    sender, owner = make(kernel)

    sender.send_parts([bytes(200_000)])
    assert sender.is_blocked
    assert not sender.is_congested
    sender.send_parts([bytes(200_000)])
    assert sender.is_congested
    kernel.become_writable(10)
    assert owner.drained == 0
    kernel.become_writable(1_000_000)

    assert owner.drained == 1


def test_one_connection_does_not_send_for_ever(kernel: Kernel) -> None:
    sender, owner = make(kernel)
    kernel.room = 1 << 40

    sender.send_parts([bytes(3_000_000), bytes(3_000_000), bytes(3_000_000)])

    assert owner.state.bytes_out == 6_000_000
    kernel.become_writable(1 << 40)
    assert owner.state.bytes_out == 9_000_000


def test_where_sendfile_does_not_work_the_file_is_read(kernel: Kernel) -> None:
    sender, owner = make(kernel)
    kernel.room = 1_000_000
    kernel.sendfile_error = OSError(errno.EINVAL, "not on this file system")
    data = random.Random(2).randbytes(200_000)

    sender.send_parts([b"a", Region(kernel, data), b"b"])

    assert bytes(kernel.taken) == b"a" + data + b"b"
    assert kernel.sendfile_calls == 1
    assert owner.errors == []


def test_sendfile_that_stops_working_in_the_middle_is_continued(kernel: Kernel) -> None:
    sender, _ = make(kernel)
    data = random.Random(2).randbytes(100_000)
    kernel.room = 40_000
    sender.send_parts([Region(kernel, data), b"end"])

    kernel.sendfile_error = OSError(errno.EINVAL, "not any more")
    kernel.become_writable(1_000_000)

    assert bytes(kernel.taken) == data + b"end"


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_file_that_was_cut_is_an_error(kernel: Kernel, size: int) -> None:
    sender, owner = make(kernel)
    kernel.room = 1_000_000
    region = Region(kernel, bytes(size))
    region.cut(50)

    sender.send_parts([b"head", region])

    assert "a file ends inside" in str(owner.errors[0])


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_reset_is_reported_once(kernel: Kernel, *, is_waiting: bool) -> None:
    sender, owner = make(kernel)
    reset = ConnectionResetError(errno.ECONNRESET, "reset")
    if is_waiting:
        sender.send_parts([bytes(100), bytes(100)])
    kernel.error = reset
    if is_waiting:
        kernel.become_writable(10)
    else:
        sender.send(b"x")

    assert owner.errors == [reset]
    sender.close()
    assert kernel.writer is None
    assert not sender.is_blocked


def test_no_descriptor_left_to_wait_with_is_reported(kernel: Kernel) -> None:
    sender, owner = make(kernel)
    kernel.has_descriptors = False

    sender.send(b"x")

    assert [error.errno for error in owner.errors] == [errno.EMFILE]


class Transport:
    """Takes what it is given, wants no more above its limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.taken = bytearray()
        self.sender: TransportSender | None = None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """The test's limit holds."""

    def write(self, data: bytes) -> None:
        """As a transport's."""
        self.taken += data
        self.held += len(data)
        if self.held > self.limit and self.sender is not None:
            self.sender.pause()


def test_a_transport_is_given_no_more_than_it_wants(kernel: Kernel) -> None:
    transport, owner = Transport(limit=50_000), Owner()
    sender = TransportSender(owner, cast("Any", transport))
    transport.sender = sender
    parts, whole = parts_of_every_kind(kernel)

    sender.send_parts(parts)
    assert sender.is_blocked
    assert sender.is_congested
    rounds = 0
    while sender.is_blocked:
        transport.held = 0
        sender.resume()
        rounds += 1

    assert rounds > 3
    assert bytes(transport.taken) == whole
    assert kernel.sendfile_calls == 0
    assert owner.drained == 1


def test_a_transport_learns_of_a_file_that_was_cut(kernel: Kernel) -> None:
    transport, owner = Transport(limit=1_000_000), Owner()
    sender = TransportSender(owner, cast("Any", transport))
    region = Region(kernel, bytes(100))
    region.cut(10)

    sender.send_parts([region])

    assert "a file ends inside" in str(owner.errors[0])
