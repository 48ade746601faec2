"""What the compiled selector does beyond the plain one: no GIL, no copies, no crash on misuse."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, ForkedClient
from millstream.network.client.selector import (
    Connected,
    Disconnected,
    Dispatched,
    PeriodicRequest,
    Received,
    Repeated,
)

if not _accel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled selector is not built (make build)", allow_module_level=True)

from millstream._accel.client.client_selector import SelectorCore
from millstream.network.client.native_selector import NativeSelector
from tests.unit.accel.holding_the_gil import receive_with_the_gil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.network.client.selector import SelectorEvent

HEARTBEAT = b"\0\0\0\x08\0\x0c\0\0\0\0\0\0"
WAIT_MS = 10_000


@pytest.fixture
def selector() -> Iterator[NativeSelector]:
    made = NativeSelector(frame_bytes_max=64 << 20)
    yield made
    made.shutdown()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_MS / 1000)
        yield listening


def connect(selector: NativeSelector, server: socket.socket, connection_id: int) -> socket.socket:
    selector.connect(connection_id, *server.getsockname())
    assert wait_for(selector, 1) == [Connected(connection_id)]
    accepted, _ = server.accept()
    accepted.settimeout(WAIT_MS / 1000)
    return accepted


def wait_for(selector: NativeSelector, count: int) -> list[SelectorEvent]:
    events: list[SelectorEvent] = []
    while len(events) < count:
        got = selector.poll(WAIT_MS)
        assert got, f"only {events}"
        events += got
    return events


def frame_of(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += peer.recv(min(size - len(received), 1 << 20))
    return bytes(received)


def test_periodic_requests_go_out_while_c_code_holds_the_gil(
    selector: NativeSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as peer:
        now_ms = SystemClock().monotonic_ms()
        selector.repeat(1, 7, PeriodicRequest(HEARTBEAT, now_ms + 10, 20, now_ms + 100_000, 5))

        received = receive_with_the_gil(peer, 4 * len(HEARTBEAT))
        selector.cancel(7)

        sent = [event for event in selector.poll(0) if isinstance(event, Repeated)]
        assert len(sent) >= 4
        assert [event.correlation_id for event in sent] == list(range(5, 5 + len(sent)))
        assert len({event.sent_ms for event in sent}) == len(sent)
        assert received[: len(HEARTBEAT)] == HEARTBEAT[:8] + struct.pack(">i", 5)


def test_large_frames_are_lent_without_a_copy_and_their_memory_is_used_again(
    selector: NativeSelector, server: socket.socket
) -> None:
    body = bytes(range(256)) * 4096

    def address_of_next() -> int:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(peer.sendall, frame_of(body))
            [event] = wait_for(selector, 1)
        assert isinstance(event, Received)
        assert isinstance(event.frame, memoryview)
        assert event.frame == body
        assert event.frame.readonly
        return address_of(event.frame)

    with connect(selector, server, 1) as peer:
        addresses = {address_of_next() for _ in range(5)}

    assert len(addresses) == 1


def address_of(view: memoryview) -> int:
    """Where the bytes of a read-only view lie."""
    holder = ctypes.py_object(view)
    buffer = (ctypes.c_ssize_t * 20)()
    ctypes.pythonapi.PyObject_GetBuffer(holder, buffer, 0)
    address = int(buffer[0])
    ctypes.pythonapi.PyBuffer_Release(buffer)
    return address


def test_a_frame_outlives_its_selector(server: socket.socket) -> None:
    selector = NativeSelector()
    body = os.urandom(100_000)
    with connect(selector, server, 1) as peer:
        peer.sendall(frame_of(body))
        [event] = wait_for(selector, 1)
    selector.shutdown()
    del selector
    gc.collect()

    assert isinstance(event, Received)
    assert event.frame == body


def test_many_frames_in_one_piece_arrive_apart_and_in_order(
    selector: NativeSelector, server: socket.socket
) -> None:
    bodies = [os.urandom(size) for size in (1, 2, 3000, 5, 70_000, 1, 2048, 2049, 200_000, 7)]

    with connect(selector, server, 1) as peer, ThreadPoolExecutor(1) as pool:
        pool.submit(peer.sendall, b"".join(map(frame_of, bodies)))
        events = wait_for(selector, len(bodies))

    assert [bytes(event.frame) for event in events if isinstance(event, Received)] == bodies


def test_parts_are_kept_alive_until_they_are_sent_and_then_let_go(
    selector: NativeSelector, server: socket.socket
) -> None:
    large = bytearray(os.urandom(8 << 20))
    expected = bytes(large)

    with connect(selector, server, 1) as peer:
        selector.send(1, [b"head", large, memoryview(b"tail")])
        with pytest.raises(BufferError):
            large.append(0)  # handed over, until all is sent
        assert receive_exactly(peer, len(large) + 8) == b"head" + expected + b"tail"
        peer.sendall(frame_of(b"done"))
        wait_for(selector, 1)

    large.append(0)


def test_what_was_not_sent_is_let_go_with_its_connection(
    selector: NativeSelector, server: socket.socket
) -> None:
    large = bytearray(64 << 20)
    with connect(selector, server, 1):
        selector.send(1, [large])
        selector.close(1)
    selector.shutdown()

    large.append(0)


def test_a_closed_connection_has_no_more_events(
    selector: NativeSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as first, connect(selector, server, 2) as second:
        first.sendall(frame_of(b"one"))
        second.sendall(frame_of(b"two"))
        assert receive_all_of(selector, 2) == b"two"
        selector.close(1)
        first.close()

        assert [event for event in selector.poll(0) if event.connection_id == 1] == []
        with pytest.raises(ValueError, match="there is a connection 2: close it first"):
            selector.connect(2, *server.getsockname())


def receive_all_of(selector: NativeSelector, connection_id: int) -> bytes:
    while True:
        for event in wait_for(selector, 1):
            if event.connection_id == connection_id and isinstance(event, Received):
                return bytes(event.frame)


def test_sending_to_a_connection_that_is_gone_is_no_error(selector: NativeSelector) -> None:
    selector.send(99, [b"x" * 100, bytearray(100_000)])
    selector.close(99)
    selector.cancel(99)
    selector.wake()

    assert selector.poll(WAIT_MS) == []


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda s: s.send(1, [5]), TypeError, "bytes-like"),
        (lambda s: s.send(1, None), TypeError, "iterable"),
        (lambda s: s.send(1, [memoryview(b"abcd")[::2]]), BufferError, "contiguous"),
        (lambda s: s.send("1", [b""]), TypeError, "int"),
        (lambda s: s.repeat(1, 1, PeriodicRequest(b"", 0, 1, 1, 1)), ValueError, "at least 12"),
        (lambda s: s.repeat(1, 1, PeriodicRequest(HEARTBEAT, 0, 0, 1, 1)), ValueError, "every"),
        (lambda s: s.repeat(1, 1, (HEARTBEAT, "soon", 1, 1, 1)), TypeError, "int"),
        (lambda s: s.poll("soon"), TypeError, "not supported"),
        (lambda s: s.give_addresses(1, 1, [(socket.AF_INET, ("x", 1))]), ValueError, "'x'"),
        (lambda s: s.give_addresses(1, 1, [(socket.AF_UNIX, ("1.1.1.1", 1))]), ValueError, "1.1"),
        (lambda s: s.__init__(), TypeError, "made once"),
    ],
)
def test_misuse_is_an_error_with_words(
    selector: NativeSelector, use: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        use(selector)


def test_a_selector_made_by_force_is_harmless() -> None:
    empty = SelectorCore.__new__(SelectorCore)

    for use in (lambda: empty.poll(0), lambda: empty.send(1, [b""]), empty.wake):
        with pytest.raises(TypeError, match="not initialised"):
            use()
    empty.shutdown()
    with pytest.raises(ValueError, match="frame_bytes_max"):
        NativeSelector(frame_bytes_max=0)


def test_use_after_shutdown_is_refused(selector: NativeSelector, server: socket.socket) -> None:
    connect(selector, server, 1).close()
    selector.shutdown()
    selector.shutdown()

    for use in (
        lambda: selector.poll(0),
        lambda: selector.send(1, [b"x"]),
        lambda: selector.connect(2, "127.0.0.1", 1),
        lambda: selector.repeat(1, 1, PeriodicRequest(HEARTBEAT, 0, 1, 1, 1)),
    ):
        with pytest.raises(ClientClosed):
            use()
    selector.wake()
    selector.close(1)
    selector.cancel(1)
    selector.give_addresses(1, 1, [])


def test_a_forked_child_is_told_and_the_parent_goes_on(
    selector: NativeSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as peer:
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: selector.poll(0), lambda: selector.send(1, [b"x"]), selector.wake):
                try:
                    use()
                except ForkedClient:
                    refused += 1
            selector.shutdown()
            os._exit(refused)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 3
        selector.send(1, [b"still here"])
        assert receive_exactly(peer, 10) == b"still here"


def test_a_selector_that_nobody_shuts_down_ends_its_thread() -> None:
    selector = NativeSelector()
    thread = selector_thread(selector)
    del selector
    gc.collect()

    thread.join(WAIT_MS / 1000)

    assert not thread.is_alive()


def selector_thread(selector: NativeSelector) -> threading.Thread:
    [thread] = [each for each in threading.enumerate() if each.name == "millstream-sockets"]
    assert selector is not None
    return thread


def test_shutdown_ends_a_poll_in_another_thread(selector: NativeSelector) -> None:
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(selector.poll, None)
        selector.shutdown()

        assert isinstance(polling.exception(), ClientClosed) or polling.result() == []


def test_a_large_response_that_comes_in_parts_is_not_waited_for_too_long(
    selector: NativeSelector, server: socket.socket
) -> None:
    """The rest is read when it is whole; what is smaller comes at once again."""
    selector.connect(1, *server.getsockname())
    assert selector.poll(WAIT_MS) == [Connected(1)]
    peer, _ = server.accept()
    large, small = b"a" * 3_000_000, b"b" * 10

    with peer, ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            data = frame_of(large) + frame_of(small)
            peer.sendall(data[:1_000])
            assert selector.poll(20) == []
            sending = pool.submit(peer.sendall, data[1_000:])
            received: list[bytes] = []
            while len(received) < 2:
                received += [bytes(event.frame) for event in selector.poll(WAIT_MS)]
            sending.result()

            assert received == [large, small]


def test_responses_that_nobody_fetches_are_bounded(server: socket.socket) -> None:
    """The sockets are read no more, so the sender has to wait; after poll() all goes on."""
    core: Any = SelectorCore(
        Connected,
        Received,
        lambda connection_id, codes, size: Disconnected(connection_id, str(codes)),
        Repeated,
        Dispatched,
        frame_bytes_max=1 << 20,
        received_bytes_max=1 << 20,
    )
    frames, size = 200, 500_000
    core.give_addresses(1, core.begin(1), [(socket.AF_INET, server.getsockname())])
    assert core.poll(WAIT_MS) == [Connected(1)]
    peer, _ = server.accept()

    with peer, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(peer.sendall, frame_of(b"x" * size) * frames)
        most, count = 0, 0
        while count < frames:
            events = core.poll(WAIT_MS)
            most = max(most, sum(len(event.frame) for event in events))
            count += len(events)
        sending.result()
    core.shutdown()

    # The limit, what one round of reads may bring on top, and one frame.
    assert most <= (1 << 20) + 64 * (1 << 16) + 2 * size


def congestion_control(local: object) -> bytes:
    """Of this process's socket that has a certain address of its own."""
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as each:
                if each.type == socket.SOCK_STREAM and each.getsockname() == local:
                    found = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                    return found.rstrip(b"\0")
        except OSError:
            continue  # It was closed meanwhile.
    pytest.fail(f"no socket at {local}")


def test_nothing_is_paced_between_two_ends_on_one_machine(
    selector: NativeSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as peer:
        assert not congestion_control(peer.getpeername()).startswith(b"bbr")
