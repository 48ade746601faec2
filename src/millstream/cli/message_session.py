"""A cluster as commands see it: bootstrap, metadata, leaders, retries. Blocking and small.

Commands open one with `open_session` and ask through `call` (any broker), `call_leader` (a
partition's leader) and `topic`. It works against Apache Kafka as well as against Millstream. The
client library will replace it; nothing outside this package may use it. One thread only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from millstream.cli.cluster_view import ClusterView, TopicView, cluster_view
from millstream.cli.connection import Address, Connection, parse_addresses
from millstream.cli.faults import CommandFailed, Unreachable, UsageFault, nearest
from millstream.clock import Clock, SystemClock
from millstream.errors import (
    LeaderNotAvailable,
    RetriableError,
    UnknownTopicOrPartition,
    error_for_code,
)
from millstream.protocol.messages import MetadataRequest, MetadataResponse
from millstream.protocol.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from millstream.cli.connection import FeatureLevel, Sent
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

R = TypeVar("R", bound="Message")
T = TypeVar("T")

TIMEOUT_MS: Final = 30_000
"""How long a command tries when nobody says otherwise."""
_CONNECT_MS_MAX: Final = 10_000
_BACKOFF_MS: Final = 100


class BrokerConnection(Protocol):
    """What a session needs of `Connection`."""

    address: Address
    features: tuple[FeatureLevel, ...]

    def call(self, request: Message, response: type[R], timeout_ms: int) -> R:
        """Send and wait."""
        ...

    def send(self, request: Message, timeout_ms: int) -> Sent:
        """Send."""
        ...

    def receive(self, sent: Sent, response: type[R], timeout_ms: int) -> R:
        """Wait."""
        ...

    def offers(self, api: ApiKey) -> bool:
        """Whether the broker knows an API."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


def _sleep(ms: int) -> None:
    time.sleep(ms / 1000)


class Session:
    """Connections to a cluster, and what is known about it."""

    def __init__(
        self,
        bootstrap: list[Address],
        *,
        timeout_ms: int = TIMEOUT_MS,
        clock: Clock | None = None,
        connect: Callable[[Address, int], BrokerConnection] = Connection,
        sleep: Callable[[int], None] = _sleep,
    ) -> None:
        self.clock = clock or SystemClock()
        self.timeout_ms = timeout_ms
        self._bootstrap = bootstrap
        self._connect = connect
        self._sleep = sleep
        self._connections: dict[Address, BrokerConnection] = {}
        self._view: ClusterView | None = None
        self._topics: dict[str, TopicView] = {}
        self._members: list[Address] = []
        """Brokers that were there when somebody last said who is."""
        self._was_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Asking.

    def call(self, request: Message, response: type[R], *, timeout_ms: int | None = None) -> R:
        """Ask any broker: one that is connected, else the first that answers."""
        try:
            return self._any().call(request, response, timeout_ms or self.timeout_ms)
        except Unreachable:
            # The connection may have been idle for too long: once more, on a new one.
            self.close()
            return self._any().call(request, response, timeout_ms or self.timeout_ms)

    def broker(self, node_id: int) -> BrokerConnection:
        """The connection to a broker of the cluster."""
        view = self._view or self.refresh()
        if node_id not in view.brokers:
            raise LeaderNotAvailable(f"broker {node_id} is not known to the cluster")
        return self._connection(view.brokers[node_id].address)

    def leader(self, topic: str, partition: int) -> BrokerConnection:
        """The connection to a partition's leader, by the metadata at hand."""
        found = self.topic(topic).partition(partition)
        if found.leader_id < 0:
            raise LeaderNotAvailable(f"{topic}-{partition} has no leader now")
        return self.broker(found.leader_id)

    def call_leader(
        self,
        topic: str,
        partition: int,
        ask: Callable[[BrokerConnection], T],
    ) -> T:
        """Ask a partition's leader; with fresh metadata again, while that may help."""
        return self.retrying(lambda: ask(self.leader(topic, partition)))

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Try until it works, fails for good, or the session's timeout has passed."""
        deadline_ms = self.clock.monotonic_ms() + self.timeout_ms
        while True:
            try:
                return attempt()
            except (RetriableError, Unreachable) as error:
                if self.clock.monotonic_ms() + _BACKOFF_MS >= deadline_ms:
                    raise
                if isinstance(error, Unreachable) and not self._was_reached:
                    raise  # Nobody answered yet: more likely a wrong address than a restart.
            self.forget()
            self._sleep(_BACKOFF_MS)

    # What is known.

    def forget(self) -> None:
        """Drop what is known of the cluster; connections that are broken are dropped with it."""
        self._topics.clear()
        self._view = None
        self.close()

    def features(self) -> tuple[FeatureLevel, ...]:
        """The features of the cluster, as a broker told when it was connected to."""
        return self._any().features

    def refresh(self) -> ClusterView:
        """Everything about the cluster, anew."""
        self._view = self._metadata(None)
        return self._view

    def topic(self, name: str) -> TopicView:
        """A topic, or an error that names the one that may have been meant."""
        if name in self._topics:
            return self._topics[name]
        view = self._metadata([name])
        if self._view is None:
            self._view = view
        topic = view.topics[name]
        if topic.error_code == UnknownTopicOrPartition.code:
            known = self._metadata(None).topics
            hint = nearest(name, known) or f"; create it: millstream topics create {name}"
            raise CommandFailed(f"there is no topic {name!r}{hint}")
        if topic.error_code:
            raise error_for_code(topic.error_code)
        self._topics[name] = topic
        return topic

    def _metadata(self, names: list[str] | None) -> ClusterView:
        topics = None if names is None else [MetadataRequestTopic(name=each) for each in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        view = cluster_view(self.call(request, MetadataResponse))
        self._members = [each.address for each in view.brokers.values()]
        return view

    def _any(self) -> BrokerConnection:
        if self._connections:
            return next(iter(self._connections.values()))
        failures = []
        for address in dict.fromkeys((*self._bootstrap, *self._members)):
            try:
                return self._connection(address)
            except Unreachable as error:
                failures.append(str(error))
        raise Unreachable("; ".join(failures))

    def _connection(self, address: Address) -> BrokerConnection:
        if address not in self._connections:
            timeout_ms = min(self.timeout_ms, _CONNECT_MS_MAX)
            self._connections[address] = self._connect(address, timeout_ms)
            self._was_reached = True
        return self._connections[address]


def open_session(bootstrap_server: str, timeout_s: float) -> Session:
    """A session for the options of a command."""
    if timeout_s <= 0:
        raise UsageFault("--timeout is a number of seconds above 0")
    try:
        addresses = parse_addresses(bootstrap_server)
    except ValueError as error:
        raise UsageFault(f"--bootstrap-server: {error}") from error
    return Session(addresses, timeout_ms=int(timeout_s * 1000))
