"""What a client knows of the cluster, and when it asks again.

`Metadata` is a state machine over `NetworkClient`: it asks for the topics that the client follows
when they are new, when something turned out to be stale, and when the answer has grown old; it
finds its way back to the bootstrap addresses when no broker is left (KIP-899). `MetadataSnapshot`
is immutable: a holder may keep it. Names are those of the wire.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.client.lasting_troubles import LastingTroubles
from millstream.client.snapshot import (
    Broker,
    MetadataSnapshot,
    Partition,
    Topic,
    snapshot_from_response,
    with_leader,
)
from millstream.errors import (
    BootstrapFailed,
    MillstreamError,
    RebootstrapRequired,
    UnknownTopicOrPartition,
)
from millstream.network.client.backoff import Backoff
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import MetadataRequest, MetadataResponse
from millstream.protocol.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from millstream.client.addresses import Address
    from millstream.network.client.network_client import NetworkClient
    from millstream.protocol.message import Message

__all__ = [
    "Broker",
    "Metadata",
    "MetadataConfig",
    "MetadataListener",
    "MetadataSnapshot",
    "Partition",
    "Topic",
]

_logger: Final = logging.getLogger(__name__)

MetadataListener: TypeAlias = "Callable[[MetadataSnapshot, MetadataSnapshot, int], None]"
"""Told what was known before, what is known now, and the time."""

BORROWED_MS: Final = 60_000
"""How long a topic that was asked for once is kept up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig:
    """How often a client asks; the defaults are Kafka's."""

    max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    topic_idle_ms: int | None = None
    """Forget a topic that nobody wanted for so long; None: never (consumers)."""
    allow_auto_topic_creation: bool = False
    rebootstrap: bool = True
    rebootstrap_trigger_ms: int = 300_000


class Metadata:
    """The cluster as the client sees it. An actor of `ClientRuntime`."""

    def __init__(
        self,
        network: NetworkClient,
        bootstrap: Sequence[Address],
        config: MetadataConfig,
        random: Random,
    ) -> None:
        self._network = network
        self._bootstrap = tuple(bootstrap)
        self._config = config
        self._random = random
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.snapshot = MetadataSnapshot()
        self.updates = 0
        """How many answers were taken; a caller that asked for one waits for the next number."""
        self._listeners: list[MetadataListener] = []
        # Topics that are followed: when each was wanted last, None while that is not known yet.
        self._followed: dict[str, int | None] = {}
        self._borrowed: dict[str, int | None] = {}
        self._wants_all = False
        self._is_update_requested = True
        self._has_new_topic = False
        self._is_asking = False
        self._asked_all = False
        self._updated_ms: int | None = None
        self._not_before_ms = 0
        self._failures = 0
        self._unsettled = 0
        self._first_failure_ms: int | None = None
        self._troubles = LastingTroubles()
        self._next_bootstrap_id = -1
        network.on_lost = self.request_update
        self._use_bootstrap()

    # What is followed.

    def want(self, topics: Iterable[str]) -> None:
        """Follow topics, from now on or still."""
        for topic in topics:
            self._touch(self._followed, topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Follow topics no longer."""
        for topic in topics:
            self._followed.pop(topic, None)

    def borrow(self, topics: Iterable[str]) -> None:
        """Ask for topics that are needed just now; they are dropped when unused for a minute."""
        for topic in topics:
            self._touch(self._borrowed, topic)

    def want_all(self, wanted: bool = True) -> None:
        """Follow every topic of the cluster, or only those that are wanted by name again."""
        if wanted and not self._wants_all:
            self.request_update()
        self._wants_all = wanted

    @property
    def followed(self) -> frozenset[str]:
        """The topics that are asked for by name."""
        return frozenset(self._followed) | frozenset(self._borrowed)

    def subscribe(self, listener: MetadataListener) -> None:
        """Tell somebody of each update."""
        self._listeners.append(listener)

    def request_update(self) -> int:
        """Ask again as soon as the backoff allows; `updates` will be this or more then."""
        self._is_update_requested = True
        return self.updates + (2 if self._is_asking else 1)

    def learn_leader(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoint: Broker | None,
        now_ms: int,
    ) -> bool:
        """Take a hint of who leads (KIP-951); False if it is not news."""
        new = with_leader(self.snapshot, topic, partition, leader_id, leader_epoch, endpoint)
        if new is None:
            return False
        self._publish(new, now_ms)
        return True

    # The actor.

    def poll(self, now_ms: int) -> int | None:
        """Ask if it is time to; when to look again."""
        self._expire_topics(now_ms)
        if self._is_asking:
            return None
        due_ms = self._due_ms()
        if now_ms < due_ms:
            return due_ms
        if self._should_rebootstrap(now_ms):
            self._rebootstrap(now_ms)
        node_id = self._network.least_loaded(now_ms)
        if node_id is None:
            return self._wait_for_brokers(now_ms)
        self._ask(node_id, now_ms)
        return None

    def failure(self) -> BootstrapFailed | None:
        """Why nothing is known of the cluster, as an error to raise; None if something is."""
        if self.snapshot.brokers:
            return None
        reasons = "; ".join(self._network.failures() or [", ".join(map(str, self._bootstrap))])
        return BootstrapFailed(f"no broker reachable (check the bootstrap addresses): {reasons}")

    # Inside.

    def _touch(self, topics: dict[str, int | None], topic: str) -> None:
        if topic not in self.snapshot.topics:
            self.request_update()
            if topic not in topics:
                # The waits between questions are about others, which were asked for in vain.
                self._has_new_topic = True
                self._unsettled = 0
        topics[topic] = None

    def _expire_topics(self, now_ms: int) -> None:
        _expire(self._borrowed, BORROWED_MS, now_ms)
        if self._config.topic_idle_ms is not None:
            _expire(self._followed, self._config.topic_idle_ms, now_ms)

    def _due_ms(self) -> int:
        if self._has_new_topic and not self._failures:
            return 0
        if self._is_update_requested or self._updated_ms is None:
            return self._not_before_ms
        return max(self._not_before_ms, self._updated_ms + self._config.max_age_ms)

    def _use_bootstrap(self) -> None:
        # New ids each time: a link remembers its failures, and these deserve a fresh try.
        for address in self._bootstrap:
            self._network.set_address(self._next_bootstrap_id, address.host, address.port)
            self._next_bootstrap_id -= 1

    def _should_rebootstrap(self, now_ms: int) -> bool:
        members = self._network.members()
        if not self._config.rebootstrap or all(each < 0 for each in members):
            return False  # The bootstrap addresses are what is being tried.
        since_ms = self._first_failure_ms
        trigger_ms = self._config.rebootstrap_trigger_ms
        has_waited = since_ms is not None and now_ms - since_ms >= trigger_ms
        return has_waited or self._network.is_cut_off()

    def _rebootstrap(self, now_ms: int) -> None:
        """Forget the brokers, keep what is known of topics until somebody tells otherwise."""
        for node_id in self._network.members():
            self._network.forget(node_id)
        self._first_failure_ms = now_ms
        self._use_bootstrap()

    def _wait_for_brokers(self, now_ms: int) -> int:
        delays = [
            self._network.connection_delay_ms(each, now_ms) for each in self._network.members()
        ]
        if self._first_failure_ms is None:
            self._first_failure_ms = now_ms
        return now_ms + max(1, min(delays, default=self._config.retry_backoff_ms))

    def _ask(self, node_id: int, now_ms: int) -> None:
        self._is_asking = True
        self._is_update_requested = False
        self._has_new_topic = False
        self._asked_all = self._wants_all
        names = None if self._wants_all else sorted(self.followed)
        request = VersionedRequest(ApiKey.METADATA, lambda version: self._request(names, version))

        def on_done(answer: Message | MillstreamError, done_ms: int) -> None:
            self._is_asking = False
            if isinstance(answer, MetadataResponse):
                self._take(answer, done_ms)
            else:
                self._on_failure(done_ms)

        self._network.send(node_id, request, now_ms, on_done)

    def _request(self, names: list[str] | None, version: int) -> MetadataRequest:
        topics = None if names is None else [MetadataRequestTopic(name=each) for each in names]
        may_create = self._config.allow_auto_topic_creation or version < 4
        return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)

    def _on_failure(self, now_ms: int) -> None:
        self._is_update_requested = True
        self._failures += 1
        if self._first_failure_ms is None:
            self._first_failure_ms = now_ms
        # Another broker may know: the connection's own backoff keeps us from this one.
        if self._network.least_loaded(now_ms) is None or self._failures > len(
            self._network.members()
        ):
            self._not_before_ms = now_ms + self._backoff.after(self._failures, self._random)

    def _take(self, answer: MetadataResponse, now_ms: int) -> None:
        if answer.error_code == RebootstrapRequired.code and self._config.rebootstrap:
            self._rebootstrap(now_ms)
            self._on_failure(now_ms)
            return
        if not answer.brokers or answer.error_code:
            self._on_failure(now_ms)  # A broker that has only just started knows nobody yet.
            return
        self._failures = 0
        self._first_failure_ms = None
        self._updated_ms = now_ms
        self.updates += 1
        new = snapshot_from_response(answer, self.snapshot, keep=self._keeps)
        self._schedule_again_if_unsettled(new, now_ms)
        for trouble in self._troubles.take(self._missing(new), now_ms):
            _logger.warning(trouble)
        self._publish(new, now_ms)

    def _keeps(self, topic: str) -> bool:
        """Whether a topic that the answer lacks is still to be known."""
        return not self._asked_all and topic in self.followed

    def _schedule_again_if_unsettled(self, new: MetadataSnapshot, now_ms: int) -> None:
        """Elections and new topics settle soon: ask again, more and more rarely."""
        missing = self.followed - new.topics.keys()
        is_unsettled = bool(missing) or any(
            each.is_unsettled for each in new.topics.values() if each.name in self.followed
        )
        self._unsettled = self._unsettled + 1 if is_unsettled else 0
        self._is_update_requested = self._is_update_requested or is_unsettled
        self._not_before_ms = now_ms + max(
            self._backoff.after(self._unsettled, self._random),
            # A caller that asks again and again for the same staleness must not flood the brokers.
            self._config.retry_backoff_ms if not missing else 0,
        )

    def _missing(self, new: MetadataSnapshot) -> dict[object, str]:
        """Topics that are followed, and why they cannot be used."""
        wanted = {each: new.topics.get(each) for each in self._followed}
        return {
            name: f"topic {name} is not there: no broker knows it; waiting for it"
            if topic is None or isinstance(topic.error, UnknownTopicOrPartition)
            else f"topic {name} cannot be used: {topic.error}"
            for name, topic in wanted.items()
            if topic is None or topic.error is not None
        }

    def _publish(self, new: MetadataSnapshot, now_ms: int) -> None:
        old, self.snapshot = self.snapshot, new
        for broker in new.brokers.values():
            self._network.set_address(broker.node_id, broker.host, broker.port)
        for node_id in self._network.members():
            if node_id not in new.brokers:
                self._network.forget(node_id)
        for listener in self._listeners:
            listener(old, new, now_ms)


def _expire(topics: dict[str, int | None], idle_ms: int, now_ms: int) -> None:
    for topic, used_ms in list(topics.items()):
        if used_ms is None:
            topics[topic] = now_ms
        elif now_ms - used_ms >= idle_ms:
            del topics[topic]
