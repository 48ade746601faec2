"""A cluster for clients under test: no sockets, virtual time that jumps to the next deadline.

It is the runtime's `ClientSelector`. Brokers that are up accept at once and answer with what the
test has registered per API; ApiVersions and Metadata are answered by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from millstream.client.config import ClientConfig
from millstream.client.runtime import ClientRuntime
from millstream.clock import ManualClock
from millstream.network.client.selector import Connected, Disconnected, Received
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.frame import decode_request, encode_response
from millstream.protocol.messages import MetadataRequest, MetadataResponse
from millstream.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.types import Uuid
from tests.unit.network.scripted_selector import api_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.network.client.selector import PeriodicRequest, SelectorEvent
    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange
    from millstream.types import ReadableBuffer

    Handler = Callable[[int, Message], Message | None]
    """Given the broker's id and the request; None: no answer (yet)."""


@dataclass
class ScriptedTopic:
    """A topic whose partitions all have one leader and epoch unless told otherwise."""

    leaders: list[int]
    epochs: list[int]
    topic_id: Uuid
    error_code: int = 0
    is_internal: bool = False


@dataclass
class Asked:
    """A request that reached a broker."""

    node_id: int
    api: ApiKey
    version: int
    message: Message
    at_ms: int


@dataclass
class ScriptedCluster:
    """Brokers 1 to n at "broker1" .. and what they answer."""

    broker_count: int = 1
    versions: Mapping[ApiKey, VersionRange] | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    topics: dict[str, ScriptedTopic] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connects: list[tuple[str, int]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    controller_id: int = 1
    metadata_error: int = 0
    members: list[int] | None = None
    is_shut_down: bool = False
    wakes: int = 0

    def __post_init__(self) -> None:
        self._handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: self._metadata}
        self._events: list[SelectorEvent] = []
        self._connections: dict[int, str] = {}

    # For tests.

    def on(self, api: ApiKey, handler: Handler) -> None:
        """Answer an API in this way from now on."""
        self._handlers[api] = handler

    def add_topic(self, name: str, leaders: Sequence[int] = (1,), epoch: int = 0) -> ScriptedTopic:
        topic = ScriptedTopic(
            list(leaders), [epoch] * len(leaders), Uuid.random(Random(len(self.topics)))
        )
        self.topics[name] = topic
        return topic

    def stop(self, host: str) -> None:
        """A broker goes down: its connections break, new ones are refused."""
        self.down.add(host)
        for connection_id, connected_to in list(self._connections.items()):
            if connected_to == host:
                del self._connections[connection_id]
                self._events.append(Disconnected(connection_id, "gone"))

    def start(self, host: str) -> None:
        """A broker comes back."""
        self.down.discard(host)

    def runtime(self, **settings: object) -> ClientRuntime:
        """A runtime that talks to this cluster."""
        config = ClientConfig(
            **{"bootstrap_servers": ("broker1:9092",), "client_id": "tester", **settings}  # type: ignore[arg-type]  # Checked by the class itself.
        )
        return ClientRuntime(self, self.clock, config, Random(1))

    def run_until(
        self, runtime: ClientRuntime, reached: Callable[[], bool], within_ms: int = 600_000
    ) -> None:
        """Turn the runtime until something holds; time jumps ahead while nothing happens."""
        end_ms = self.clock.monotonic_ms() + within_ms
        while not reached():
            left_ms = end_ms - self.clock.monotonic_ms()
            assert left_ms > 0, "it did not come to that"
            runtime.run_once(left_ms)

    def run_for(self, runtime: ClientRuntime, ms: int) -> None:
        """Turn the runtime for a while."""
        end_ms = self.clock.monotonic_ms() + ms
        self.run_until(runtime, lambda: self.clock.monotonic_ms() >= end_ms, ms + 1)

    def count(self, api: ApiKey) -> int:
        return sum(1 for each in self.asked if each.api is api)

    # ClientSelector.

    def connect(self, connection_id: int, host: str, port: int) -> None:
        self.connects.append((host, port))
        if host in self.down:
            self._events.append(Disconnected(connection_id, "refused"))
        else:
            self._connections[connection_id] = host
            self._events.append(Connected(connection_id))

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        host = self._connections.get(connection_id)
        if host is None:
            return
        header, message = decode_request(b"".join(parts)[4:])
        api = API_BY_KEY[header.request_api_key]
        if api is ApiKey.API_VERSIONS:
            answer: Message | None = api_versions(self.versions)
        else:
            node_id = int(host.removeprefix("broker"))
            version = header.request_api_version
            self.asked.append(Asked(node_id, api, version, message, self.clock.monotonic_ms()))
            answer = self._handlers[api](node_id, message) if api in self._handlers else None
        if answer is not None and connection_id in self._connections:
            frame = encode_response(answer, header.request_api_version, header.correlation_id)
            self._events.append(Received(connection_id, frame[4:]))

    def close(self, connection_id: int) -> None:
        self._connections.pop(connection_id, None)

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        raise AssertionError("no periodic requests here")

    def cancel(self, periodic_id: int) -> None:
        raise AssertionError("no periodic requests here")

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        events, self._events = self._events, []
        if not events and timeout_ms:
            self.clock.advance(timeout_ms)
        return events

    def wake(self) -> None:
        self.wakes += 1

    def shutdown(self) -> None:
        self.is_shut_down = True

    def _metadata(self, _node_id: int, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        names = (
            list(self.topics)
            if request.topics is None
            else [each.name or "" for each in request.topics]
        )
        members = self.members or list(range(1, self.broker_count + 1))
        return MetadataResponse(
            error_code=self.metadata_error,
            cluster_id="scripted",
            controller_id=self.controller_id,
            brokers=[
                MetadataResponseBroker(node_id=each, host=f"broker{each}", port=9092)
                for each in members
            ],
            topics=[self._topic(each) for each in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(error_code=3, name=name)
        return MetadataResponseTopic(
            error_code=topic.error_code,
            name=name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                MetadataResponsePartition(
                    error_code=0 if leader >= 0 else 5,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=topic.epochs[index],
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
                for index, leader in enumerate(topic.leaders)
            ],
        )
