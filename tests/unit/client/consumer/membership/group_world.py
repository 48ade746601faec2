"""A group's coordinator, metadata and user in a test's hands, around the machines of membership.

The test answers each request itself, so a story reads as what was said and what happened then.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.membership.group_view import GroupView
from millstream.client.consumer.membership.handover import Handover
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata
from millstream.client.snapshot import Broker, MetadataSnapshot, Partition, Topic
from millstream.errors import BrokerUnreachable, MillstreamError
from millstream.network.client.network_client import VersionedRequest
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.router import Target
    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

M = TypeVar("M", bound="Message")

GROUP = "g"


def settings(**changes: Any) -> ConsumerConfig:
    return ConsumerConfig(bootstrap_servers=("broker:9092",), group_id=GROUP, **changes)


def partitions(text: str) -> frozenset[TopicPartition]:
    """`"a-0 a-1"`."""
    pairs = (each.rsplit("-", 1) for each in text.split())
    return frozenset(TopicPartition(topic, int(index)) for topic, index in pairs)


def names(found: Iterable[TopicPartition]) -> str:
    return " ".join(map(str, sorted(found)))


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"\1"))


def to(*topics: str) -> Subscription:
    return Subscription(topics=frozenset(topics))


class Sent(NamedTuple):
    """A request that waits for the test's answer."""

    source: RequestSource
    on_done: OnDone
    timeout_ms: int | None


class PeriodicRequest(NamedTuple):
    """A heartbeat that the selector would repeat."""

    request: Message
    first_ms: int
    every_ms: int
    until_ms: int
    on_response: OnDone


class FakeLink:
    """The coordinator, as near as a test wants it."""

    def __init__(self) -> None:
        self.ready = True
        self.lost_at: list[int] = []
        self.sent: list[Sent] = []
        self.orders: dict[int, PeriodicRequest] = {}
        self.version: int | None = 1
        self._next_order = 1

    def is_ready(self, now_ms: int) -> bool:
        return self.ready

    def due_ms(self, now_ms: int) -> int | None:
        return now_ms + 50

    def lost(self, now_ms: int) -> None:
        self.lost_at.append(now_ms)

    def worked(self) -> None:
        pass

    def version_of(self, api: ApiKey) -> int | None:
        return self.version

    def send(
        self, request: RequestSource, now_ms: int, on_done: OnDone, timeout_ms: int | None = None
    ) -> None:
        self.sent.append(Sent(request, on_done, timeout_ms))

    def send_leave(self, request: RequestSource, now_ms: int, on_done: Callable[[], None]) -> None:
        self.send(request, now_ms, lambda answer, then_ms: on_done())

    def repeat(
        self, request: Message, first_ms: int, every_ms: int, until_ms: int, on_response: OnDone
    ) -> int:
        if not self.ready:
            raise BrokerUnreachable("not connected")
        self._next_order += 1
        order = PeriodicRequest(request, first_ms, every_ms, until_ms, on_response)
        self.orders[self._next_order] = order
        return self._next_order

    def cancel(self, request_id: int) -> None:
        self.orders.pop(request_id, None)

    # For tests.

    def request(self, kind: type[M], version: int | None = None) -> M:
        """The one request under way, as it would be sent in a version (the newest)."""
        (sent,) = self.sent
        source = sent.source
        newest = kind.VERSIONS.highest if version is None else version
        message = source.build(newest) if isinstance(source, VersionedRequest) else source
        assert isinstance(message, kind)
        message.encode_parts(newest)  # It must be possible to send it.
        return message

    def answer(self, response: Message | MillstreamError, now_ms: int = 0) -> None:
        (sent,) = self.sent
        self.sent = []
        sent.on_done(response, now_ms)

    def hang_up(self, now_ms: int) -> None:
        """The connection breaks, and the periodic request ends with it."""
        order = self.order
        self.orders.clear()
        order.on_response(BrokerUnreachable("gone"), now_ms)

    @property
    def order(self) -> PeriodicRequest:
        (order,) = self.orders.values()
        return order


class Called(NamedTuple):
    """A call of the router that waits for the test's answer."""

    source: RequestSource
    target: Target
    on_done: OnDone
    deadline_ms: int
    error_of: Callable[[Message], int]


class FakeRouter:
    """Calls that the test answers; it tries nothing again by itself."""

    def __init__(self) -> None:
        self.calls: list[Called] = []

    def call(
        self,
        request: RequestSource,
        target: Target,
        on_done: OnDone,
        *,
        deadline_ms: int,
        now_ms: int,
        error_of: Callable[[Message], int],
    ) -> None:
        self.calls.append(Called(request, target, on_done, deadline_ms, error_of))

    @property
    def target(self) -> Target:
        (call,) = self.calls
        return call.target

    @property
    def highest(self) -> int | None:
        (call,) = self.calls
        return call.source.highest if isinstance(call.source, VersionedRequest) else None

    def error_of(self, response: Message) -> int:
        (call,) = self.calls
        return call.error_of(response)

    def request(self, kind: type[M], version: int | None = None) -> M:
        """The one call under way, as it would be sent in a version (the newest)."""
        (call,) = self.calls
        newest = kind.VERSIONS.highest if version is None else version
        source = call.source
        message = source.build(newest) if isinstance(source, VersionedRequest) else source
        assert isinstance(message, kind)
        message.encode_parts(newest)  # It must be possible to send it.
        return message

    def answer(self, response: Message | MillstreamError, now_ms: int = 0) -> None:
        (call,) = self.calls
        self.calls = []
        call.on_done(response, now_ms)


class FakeMetadata:
    """Topics that a test makes."""

    def __init__(self, **sizes: int) -> None:
        self.updates = 1
        self.wanted: set[str] = set()
        self.wants_all = False
        self.requests = 0
        self.snapshot = self._snapshot(sizes)

    def _snapshot(self, sizes: dict[str, int]) -> MetadataSnapshot:
        brokers = {0: Broker(0, "h", 1, "east"), 1: Broker(1, "h", 2, "west")}
        topics = {
            name: Topic(
                name,
                topic_id(name),
                tuple(Partition(index, 0, 0, (0, 1), (0, 1)) for index in range(size)),
                is_internal=name.startswith("__"),
            )
            for name, size in sizes.items()
        }
        return MetadataSnapshot("c", 0, brokers, topics)

    def change(self, **sizes: int) -> None:
        """Another answer came."""
        self.updates += 1
        self.snapshot = self._snapshot(sizes)

    def want(self, topics: Iterable[str]) -> None:
        self.wanted.update(topics)

    def forget(self, topics: Iterable[str]) -> None:
        self.wanted.difference_update(topics)

    def want_all(self, wanted: bool = True) -> None:
        self.wants_all = wanted

    def request_update(self) -> int:
        self.requests += 1
        return self.updates + 1


class FakeOwner:
    """The consumer's core: it remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[RebalanceEvent] = []
        self.errors: list[MillstreamError] = []

    def on_rebalance(self, event: RebalanceEvent) -> None:
        self.events.append(event)

    def on_group_error(self, error: MillstreamError) -> None:
        self.errors.append(error)


class FakeHost:
    """The membership around a machine."""

    def __init__(self) -> None:
        self.until_ms = 300_000
        self.identity = ConsumerGroupMetadata(GROUP)
        self.errors: list[MillstreamError] = []

    def heartbeats_until_ms(self, now_ms: int) -> int:
        return self.until_ms

    def identity_changed(self, identity: ConsumerGroupMetadata) -> None:
        self.identity = identity

    def failed(self, error: MillstreamError) -> None:
        self.errors.append(error)


class World:
    """Everything around one machine."""

    def __init__(self, **sizes: int) -> None:
        self.link = FakeLink()
        self.metadata = FakeMetadata(**sizes)
        self.view = GroupView(self.metadata, exclude_internal_topics=True)  # type: ignore[arg-type]  # a stand-in
        self.owner = FakeOwner()
        self.handover = Handover(self.owner)
        self.host = FakeHost()
        self.random = Random(7)
        self._acknowledged = 0

    @property
    def events(self) -> list[RebalanceEvent]:
        """What the user was told and has not acknowledged."""
        return self.owner.events[self._acknowledged :]

    def acknowledge(self, now_ms: int = 0) -> RebalanceEvent:
        """The user's listener has run for the one event."""
        (event,) = self.events
        self._acknowledged += 1
        self.handover.acknowledge(event, now_ms)
        return event
