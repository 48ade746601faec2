"""Both selectors of clients on real sockets: what the compiled one does, the plain one does."""

from __future__ import annotations

import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream.clock import SystemClock
from millstream.network.client import name_resolution
from millstream.network.client.client_socket import describe_errno
from millstream.network.client.selector import (
    ClientSelector,
    Connected,
    Disconnected,
    PeriodicRequest,
    Received,
    Repeated,
    SocketSelector,
)
from millstream.network.client.selector_factory import open_client_selector
from tests.waiting import once_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.network.client.name_resolution import Resolution
    from millstream.network.client.selector import SelectorEvent

pytestmark = pytest.mark.integration

WAIT_MS = 10_000
HEARTBEAT = struct.pack(">ihhi", 8, 12, 0, 0)


def plain(frame_bytes_max: int) -> ClientSelector:
    return SocketSelector(frame_bytes_max=frame_bytes_max)


def chosen(frame_bytes_max: int) -> ClientSelector:
    return open_client_selector(frame_bytes_max=frame_bytes_max)


@pytest.fixture(params=[plain, chosen], ids=["plain", "chosen"])
def selector(request: pytest.FixtureRequest) -> Iterator[ClientSelector]:
    made: ClientSelector = request.param(64 << 20)
    yield made
    made.shutdown()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_MS / 1000)
        yield listening


def until(selector: ClientSelector, count: int) -> list[SelectorEvent]:
    """The next events, as many as asked for."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + WAIT_MS
    events: list[SelectorEvent] = []
    while len(events) < count and clock.monotonic_ms() < end_ms:
        events += selector.poll(end_ms - clock.monotonic_ms())
    return events


def connect(selector: ClientSelector, server: socket.socket, connection_id: int) -> socket.socket:
    selector.connect(connection_id, *server.getsockname())
    assert until(selector, 1) == [Connected(connection_id)]
    accepted, _ = server.accept()
    accepted.settimeout(WAIT_MS / 1000)
    return accepted


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += peer.recv(size - len(data))
    return data


def test_frames_go_both_ways(selector: ClientSelector, server: socket.socket) -> None:
    with connect(selector, server, 1) as peer:
        selector.send(1, [b"ab", memoryview(b"cd"), b"", bytearray(b"ef")])
        selector.poll(0)
        assert read(peer, 6) == b"abcdef"

        peer.sendall(framed(b"one") + framed(b"two") + framed(b"th"))
        events = until(selector, 3)

    assert [(e.connection_id, bytes(e.frame)) for e in events if isinstance(e, Received)] == [
        (1, b"one"),
        (1, b"two"),
        (1, b"th"),
    ]


def test_a_frame_in_pieces_is_put_together(selector: ClientSelector, server: socket.socket) -> None:
    with connect(selector, server, 1) as peer:
        whole = framed(b"slow")
        for start in range(len(whole)):
            peer.sendall(whole[start : start + 1])
            if start + 1 < len(whole):
                assert not selector.poll(5)
        (event,) = until(selector, 1)

    assert isinstance(event, Received)
    assert bytes(event.frame) == b"slow"


def test_large_frames_in_both_directions(selector: ClientSelector, server: socket.socket) -> None:
    large = bytes(range(256)) * (1 << 14)
    with connect(selector, server, 1) as peer, ThreadPoolExecutor(1) as pool:
        arriving = pool.submit(read, peer, len(large))
        selector.send(1, [large[:1000], large[1000:]])
        while not arriving.done():
            selector.poll(20)
        assert arriving.result() == large

        sending = pool.submit(peer.sendall, framed(large) + framed(b"after"))
        first, second = until(selector, 2)
        sending.result()

    assert isinstance(first, Received)
    assert bytes(first.frame) == large
    assert isinstance(second, Received)
    assert bytes(second.frame) == b"after"


def test_a_refused_connection_says_so(selector: ClientSelector) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    selector.connect(1, *address)

    (event,) = until(selector, 1)

    assert event == Disconnected(1, "connection refused: is a broker running there?")


def test_a_host_that_does_not_exist_says_so(
    selector: ClientSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    selector.connect(1, "nobody.example", 9092)

    (event,) = until(selector, 1)

    assert event == Disconnected(1, "no such host: Name or service not known")


def test_every_address_of_a_name_is_tried(
    selector: ClientSelector, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = server.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, (host, port))
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    selector.connect(7, "two.example", port)

    assert until(selector, 1) == [Connected(7)]


def test_a_connection_that_was_closed_while_its_name_was_looked_up_stays_closed(
    selector: ClientSelector, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()
    done = threading.Event()
    look_up = name_resolution._resolution

    def slow(connection_id: int, host: str, port: int) -> Resolution:
        may_answer.wait(WAIT_MS / 1000)
        done.set()
        return look_up(connection_id, "127.0.0.1", port)

    monkeypatch.setattr(name_resolution, "_resolution", slow)
    selector.connect(1, "slow.example", server.getsockname()[1])
    selector.close(1)
    may_answer.set()
    assert done.wait(WAIT_MS / 1000)

    assert selector.poll(50) == []


def test_a_broker_that_hangs_up_is_noticed_after_its_last_frame(
    selector: ClientSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as peer:
        peer.sendall(framed(b"last") + b"\0\0")
    last, gone = until(selector, 2)

    assert isinstance(last, Received)
    assert bytes(last.frame) == b"last"
    assert gone == Disconnected(1, "the broker closed the connection")


def test_a_frame_that_claims_too_much_ends_the_connection(
    selector: ClientSelector, server: socket.socket
) -> None:
    with connect(selector, server, 1) as peer:
        peer.sendall(framed(b"fine") + b"HTTP/1.1 400 Bad Request\r\n")
        fine, bad = until(selector, 2)

    assert isinstance(fine, Received)
    assert isinstance(bad, Disconnected)
    assert "limit 67108864" in bad.reason


def test_nothing_follows_a_close(selector: ClientSelector, server: socket.socket) -> None:
    with connect(selector, server, 1) as peer:
        selector.close(1)
        selector.close(1)
        selector.send(1, [b"nobody hears this"])

        assert peer.recv(1) == b""
        assert selector.poll(20) == []


def test_waking_ends_the_wait(selector: ClientSelector) -> None:
    def poll() -> list[SelectorEvent]:
        return selector.poll(None)

    with once_blocked(selector.wake, poll):
        assert poll() == []

    selector.wake()
    selector.wake()
    assert selector.poll(WAIT_MS) == []


def test_a_periodic_request_is_sent_again_and_again_until_it_ends(
    selector: ClientSelector, server: socket.socket
) -> None:
    now_ms = SystemClock().monotonic_ms()
    periodic = PeriodicRequest(HEARTBEAT, now_ms, 20, now_ms + 1_000_000, 500)
    with connect(selector, server, 1) as peer:
        selector.repeat(1, 9, periodic)
        sent = [event for event in until(selector, 3) if isinstance(event, Repeated)]
        selector.cancel(9)
        selector.cancel(9)
        received = read(peer, 3 * len(HEARTBEAT))

    assert [event[:3] for event in sent[:3]] == [(1, 9, 500), (1, 9, 501), (1, 9, 502)]
    ids = [received[i * 12 + 8 : i * 12 + 12] for i in range(3)]
    assert [int.from_bytes(each, "big") for each in ids] == [500, 501, 502]


def test_a_periodic_request_ends_with_its_time_and_with_its_connection(
    selector: ClientSelector, server: socket.socket
) -> None:
    now_ms = SystemClock().monotonic_ms()
    with connect(selector, server, 1) as peer:
        selector.repeat(1, 1, PeriodicRequest(HEARTBEAT, now_ms, 1, now_ms, 500))
        selector.repeat(
            1, 2, PeriodicRequest(HEARTBEAT, now_ms + 100_000, 1, now_ms + 200_000, 600)
        )
        assert selector.poll(20) == []
        selector.close(1)

        assert selector.poll(20) == []
        assert peer.recv(1) == b""


def test_shutting_down_again_is_fine(selector: ClientSelector, server: socket.socket) -> None:
    with connect(selector, server, 1) as peer:
        selector.shutdown()
        selector.shutdown()

        assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("code", "words"), [(104, "without TLS"), (113, "No route to host"), (111, "is a broker")]
)
def test_errors_of_the_system_are_put_into_words(code: int, words: str) -> None:
    assert words in describe_errno(code)


def test_a_late_request_is_not_made_up_for(server: socket.socket) -> None:
    selector = SocketSelector()
    now_ms = SystemClock().monotonic_ms()
    with connect(selector, server, 1):
        selector.repeat(1, 1, PeriodicRequest(HEARTBEAT, now_ms - 1_000, 10, now_ms + 10_000, 500))
        events = selector.poll(0)
    selector.shutdown()

    assert len(events) <= 2
