"""A throw-away Kafka server for tests: keeps what producers send, serves what tests put there.

It speaks seven requests in one fixed, old version each, written by hand from the protocol's
description, so that a fault in our own codec of messages cannot hide here. Every topic exists, has
one partition, and is led by this server. One thread per connection; nothing goes to disk.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from typing import TYPE_CHECKING

from millstream.records import RecordBatch, split_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, INIT_PRODUCER_ID = 18, 22
# librdkafka turns compression off unless Produce and FindCoordinator reach down to 0.
VERSIONS = {
    PRODUCE: (0, 7),
    FETCH: (0, 11),
    LIST_OFFSETS: (0, 2),
    METADATA: (0, 4),
    FIND_COORDINATOR: (0, 0),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
}
COORDINATOR_NOT_AVAILABLE = 15
NODE_ID = 1
EMPTY_FETCH_SECONDS = 0.02
EARLIEST = -2


class Reader:
    """Takes fields off the front of a request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> int:
        """One number, by its struct letter."""
        (value,) = struct.unpack_from(f">{layout}", self._data, self._position)
        self._position += struct.calcsize(f">{layout}")
        return int(value)

    def raw(self, size: int) -> bytes:
        """So many bytes."""
        self._position += size
        return self._data[self._position - size : self._position]

    def string(self) -> str | None:
        """A string with its length in 16 bits, -1 for null."""
        size = self.take("h")
        return None if size < 0 else self.raw(size).decode()

    def sized(self) -> bytes:
        """Bytes with their length in 32 bits, null as nothing."""
        return self.raw(max(self.take("i"), 0))

    def many(self, read: Callable[[], object]) -> list[object]:
        """An array."""
        return [read() for _ in range(max(self.take("i"), 0))]


def string(text: str | None) -> bytes:
    """A string with its length in 16 bits."""
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def array(items: Iterable[bytes]) -> bytes:
    """An array of encoded items."""
    parts = list(items)
    return struct.pack(">i", len(parts)) + b"".join(parts)


class MiniBroker:
    """The server; `with` starts and stops it."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.broker = self
        self._thread = threading.Thread(target=self._server.serve_forever, name="mini-broker")
        self._logs: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._producer_ids = 4000

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def put(self, topic: str, batches: bytes) -> None:
        """Lay batches into a topic, offsets and all."""
        with self._lock:
            self._logs[topic] = batches

    def contents(self, topic: str) -> bytes:
        """Everything in a topic, as producers sent it but for the offsets."""
        with self._lock:
            return self._logs.get(topic, b"")

    def append(self, topic: str, batch: bytes) -> int:
        """Add a producer's batch; give its offset."""
        with self._lock:
            log = self._logs.get(topic, b"")
            base_offset = next_offset(log)
            numbered = bytearray(batch)
            RecordBatch(numbered).patch(base_offset, leader_epoch=0)
            self._logs[topic] = log + numbered
            return base_offset

    def next_producer_id(self) -> int:
        """An id that nobody has yet."""
        with self._lock:
            self._producer_ids += 1
            return self._producer_ids

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def next_offset(log: bytes) -> int:
    """The offset after the last batch."""
    return max((batch.next_offset for batch in split_batches(log)), default=0)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    broker: MiniBroker


class _Connection(socketserver.BaseRequestHandler):
    """One client: requests in, answers out, in order."""

    server: _Server
    request: socket.socket

    def handle(self) -> None:
        stream = self.request.makefile("rb")
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with stream:
            while len(size := stream.read(4)) == 4:
                request = Reader(stream.read(*struct.unpack(">i", size)))
                api, _version, correlation = request.take("h"), request.take("h"), request.take("i")
                request.string()
                body = self._answer(api, request)
                if body is None:  # acks=0 wants none
                    continue
                try:
                    self.request.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)
                except OSError:
                    return

    def _answer(self, api: int, request: Reader) -> bytes | None:
        match api:
            case 18:
                return self._api_versions()
            case 3:
                return self._metadata(request)
            case 0:
                return self._produce(request)
            case 1:
                return self._fetch(request)
            case 2:
                return self._list_offsets(request)
            case 22:
                producer_id = self.server.broker.next_producer_id()
                return struct.pack(">ihqh", 0, 0, producer_id, 0)
            case 10:
                return struct.pack(">hi", COORDINATOR_NOT_AVAILABLE, -1) + string("") + bytes(4)
            case _:
                raise AssertionError(f"api {api} was not advertised")

    def _api_versions(self) -> bytes:
        # Version 3, the one flexible message here: lengths are varints plus one, tags follow.
        ranges = [struct.pack(">hhhb", api, low, high, 0) for api, (low, high) in VERSIONS.items()]
        return struct.pack(">hb", 0, len(ranges) + 1) + b"".join(ranges) + struct.pack(">ib", 0, 0)

    def _metadata(self, request: Reader) -> bytes:
        topics = [str(topic) for topic in request.many(request.string)]
        broker = struct.pack(">i", NODE_ID) + string("127.0.0.1")
        broker += struct.pack(">i", self.server.broker.port) + string(None)
        me = struct.pack(">i", NODE_ID)
        partition = struct.pack(">hii", 0, 0, NODE_ID) + array([me]) + array([me])
        return (
            struct.pack(">i", 0)
            + array([broker])
            + string("mini")
            + me
            + array(
                struct.pack(">h", 0) + string(topic) + b"\0" + array([partition])
                for topic in topics
            )
        )

    def _produce(self, request: Reader) -> bytes | None:
        request.string()
        acks = request.take("h")
        request.take("i")

        def topic() -> bytes:
            name = request.string() or ""

            def partition() -> bytes:
                index = request.take("i")
                base_offset = self.server.broker.append(name, request.sized())
                return struct.pack(">ihqqq", index, 0, base_offset, -1, 0)

            return string(name) + array(map(_as_bytes, request.many(partition)))

        topics = array(map(_as_bytes, request.many(topic)))
        return topics + struct.pack(">i", 0) if acks else None

    def _fetch(self, request: Reader) -> bytes:
        request.raw(4 + 4 + 4 + 4 + 1 + 4 + 4)
        has_found = False

        def topic() -> bytes:
            name = request.string() or ""

            def partition() -> bytes:
                nonlocal has_found
                index, _epoch, offset = request.take("i"), request.take("i"), request.take("q")
                request.raw(8 + 4)
                log = self.server.broker.contents(name)
                found = b"".join(
                    batch.view for batch in split_batches(log) if batch.last_offset >= offset
                )
                has_found |= bool(found)
                end = next_offset(log)
                return (
                    struct.pack(">ihqqqii", index, 0, end, end, 0, 0, -1)
                    + struct.pack(">i", len(found))
                    + found
                )

            return string(name) + array(map(_as_bytes, request.many(partition)))

        topics = array(map(_as_bytes, request.many(topic)))
        if not has_found:
            time.sleep(EMPTY_FETCH_SECONDS)
        return struct.pack(">ihi", 0, 0, 0) + topics

    def _list_offsets(self, request: Reader) -> bytes:
        request.raw(4 + 1)

        def topic() -> bytes:
            name = request.string() or ""

            def partition() -> bytes:
                index, timestamp = request.take("i"), request.take("q")
                log = self.server.broker.contents(name)
                first = min((batch.base_offset for batch in split_batches(log)), default=0)
                offset = first if timestamp == EARLIEST else next_offset(log)
                return struct.pack(">ihqq", index, 0, -1, offset)

            return string(name) + array(map(_as_bytes, request.many(partition)))

        return struct.pack(">i", 0) + array(map(_as_bytes, request.many(topic)))


def _as_bytes(part: object) -> bytes:
    assert isinstance(part, bytes)
    return part
