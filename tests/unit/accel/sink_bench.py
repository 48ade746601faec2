"""A compiled accumulator on a compiled selector, and a socket in the place of a broker."""

from __future__ import annotations

import socket
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.client.producer.compiled_accumulator import make_accumulator
from millstream.client.producer.completions import Completions
from millstream.client.producer.produce_sink import (
    NOBODY,
    UNLIMITED,
    ProducerIdentity,
    Route,
)
from millstream.clock import SystemClock
from millstream.network.client.native_selector import NativeSelector
from millstream.network.client.request_framing import RequestFraming
from millstream.network.client.selector import Connected, Dispatched
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import SIZE_BYTES, decode_request, encode_response
from millstream.protocol.messages import ProduceRequest, ProduceResponse
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from millstream.client.producer.compiled_accumulator import CompiledAccumulator

TOPIC = "topic"
TOPIC_ID = Uuid(b"0123456789abcdef")
CONNECTION = 1
WAIT_MS = 10_000


class InlineDispatcher:
    """Calls at once, on the caller's thread."""

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        function(*arguments)


def compiled_accumulator(**settings: Any) -> CompiledAccumulator:
    """With a topic of four partitions."""
    given: dict[str, Any] = {
        "batch_size": 4000,
        "linger_ms": 1,
        "buffer_memory": 1 << 20,
        "record_size_max": 100_000,
        "wake": lambda: None,
        "random": Random(1),
        **settings,
    }
    made: Any = make_accumulator(
        clock=SystemClock(), completions=Completions(InlineDispatcher()), **given
    )
    made.set_topic(TOPIC, 4, range(4))
    return made  # type: ignore[no-any-return]  # It is, where the kernel is built.


def head_of(version: int) -> bytes:
    """How a request in a version begins, to its only topic."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, topic_id=TOPIC_ID, partition_data=[])],
    )
    body = request.encode(version)
    framed = RequestFraming("tests").framed(
        ApiKey.PRODUCE, version, 0, [body[: -3 if version >= 9 else -4]]
    )
    return b"".join(framed)[SIZE_BYTES:]


class SinkBench:
    """Both ends of the way of a batch. A context manager."""

    def __init__(
        self, *, max_in_flight: int = 5, expects_answers: bool = True, **settings: Any
    ) -> None:
        self.selector = NativeSelector()
        self.accumulator = compiled_accumulator(**settings)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.selector.connect(CONNECTION, *self._server.getsockname())
        assert self.selector.poll(WAIT_MS) == [Connected(CONNECTION)]
        self.peer, _ = self._server.accept()
        self.peer.settimeout(WAIT_MS / 1000)
        assert self.accumulator.sink.attach(
            self.selector, max_in_flight=max_in_flight, expects_answers=expects_answers
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.selector.shutdown()
        self.peer.close()
        self._server.close()

    def queue(self, partition: int) -> Any:
        return self.accumulator._topics[TOPIC].partitions[partition]

    def grant(
        self,
        partition: int = 0,
        version: int = 13,
        sequence: int = 0,
        allowance: int = UNLIMITED,
        attributes: int = 0,
    ) -> bool:
        """Let a partition send, as producer 77 in epoch 3; without numbers for sequence -1."""
        queue = self.queue(partition)
        self.accumulator.revoke(queue)
        queue.next_sequence = max(0, sequence)
        route = Route(CONNECTION, version, attributes, version, head_of(version))
        identity = NOBODY if sequence < 0 else ProducerIdentity(77, 3)
        return self.accumulator.grant(queue, route, allowance, identity)

    def send(self, value: bytes, partition: int = 0) -> Any:
        return self.accumulator.append(TOPIC, partition, None, value, timestamp=1000)

    def receive(self) -> tuple[int, Any]:
        """The correlation id and the request that came."""
        size = int.from_bytes(self._exactly(SIZE_BYTES), "big")
        header, request = decode_request(self._exactly(size))
        return header.correlation_id, request

    def taken(self) -> list[tuple[int, int, list[Any]]]:
        """What was sent so far: correlation ids, versions, and the queues and batches."""
        return self.accumulator.sink.take_sent()

    def dispatched(self) -> Dispatched:
        """The next event, which must be one of a request."""
        [event] = self.selector.poll(WAIT_MS)
        assert isinstance(event, Dispatched)
        return event

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.peer.recv(size - len(received))
            assert piece, "the client hung up"
            received += piece
        return bytes(received)


def response(version: int, correlation_id: int = 1 << 29, **change: Any) -> bytes:
    """An answer for two partitions, without its size."""
    throttle_time_ms = change.pop("throttle_time_ms", 0)
    well = PartitionProduceResponse(index=0, base_offset=5, log_append_time_ms=-1)
    other = PartitionProduceResponse(index=1, base_offset=7, **change)
    told = [TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[well, other])]
    answer = ProduceResponse(responses=told, throttle_time_ms=throttle_time_ms)
    return encode_response(answer, version, correlation_id)[SIZE_BYTES:]
