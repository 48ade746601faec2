"""What share groups need of the rest of a broker: states, the log of states, ends of partitions.

`BrokerShares` makes these for the group coordinator, the share coordinator and the leaders of share
partitions. The coordinator of a state and the leader of a partition are in this process or on
another broker: `node.share_state_apis` has the requests.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.node.peer_calls import TRIES_MAX, PeerCalls
from millstream.node.share_state_apis import (
    Change,
    Deletions,
    End,
    Ends,
    Initial,
    Initializations,
    Reading,
    Readings,
    Summaries,
    Writings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import (
        ShareKey,
        ShareState,
        StateChange,
        StateSummary,
    )
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.peer_calls import PeerContext
    from millstream.replica.record_deletion import DeleteResult
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.internal_topics import InternalTopics

_logger = logging.getLogger(__name__)

_DELETE_TIMEOUT_MS = 30_000


class BrokerShareStates:
    """A `coordinator.share.ports.ShareStateStore`: asks the coordinator, wherever it is.

    The topic of the states is made when the first share partition begins.
    """

    def __init__(
        self,
        shares: ShareCoordinator,
        topics: InternalTopics,
        metadata: KRaftMetadataCache,
        context: PeerContext,
    ) -> None:
        self._topics = topics
        peers = context.make_peers()

        def calls(api: Any, tries_max: int = TRIES_MAX) -> PeerCalls[Any, Any]:
            return PeerCalls(api, context, peers, tries_max=tries_max)

        self._initializations = calls(Initializations(shares, metadata))
        # Whoever fetches asks again, and knows for how long.
        self._readings = calls(Readings(shares, metadata), tries_max=1)
        self._writings = calls(Writings(shares, metadata))
        self._deletions = calls(Deletions(shares, metadata))
        self._summaries = calls(Summaries(shares, metadata))
        self._all = (
            self._initializations,
            self._readings,
            self._writings,
            self._deletions,
            self._summaries,
        )

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Begin a share partition, when there is a topic for its state."""

        def ensured(error: ApiError | None) -> None:
            if error is not None:
                done(error)
            else:
                self._initializations.ask(Initial(key, state_epoch, start_offset), done)

        self._topics.ensure(SHARE_STATE_TOPIC, ensured)

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | ApiError], None]
    ) -> None:
        """What is known of a share partition."""
        self._readings.ask(Reading(key, leader_epoch), done)

    def write(
        self, key: ShareKey, change: StateChange, done: Callable[[ApiError | None], None]
    ) -> None:
        """Keep what the leader says."""
        self._writings.ask(Change(key, change), done)

    def delete(self, key: ShareKey, done: Callable[[ApiError | None], None]) -> None:
        """Forget a share partition."""
        self._deletions.ask(Reading(key), done)

    def summarize(
        self, key: ShareKey, leader_epoch: int, done: Callable[[StateSummary | ApiError], None]
    ) -> None:
        """How far a share partition has come."""
        self._summaries.ask(Reading(key, leader_epoch), done)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        deadlines = (each.next_deadline_ms() for each in self._all)
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Ask again what is due."""
        for each in self._all:
            each.tick()

    def close(self) -> None:
        """Ask nobody any more."""
        for each in self._all:
            each.close()


class BrokerStateLog:
    """A `coordinator.share.ports.StateLog` on the replica manager."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def end_offset(self, partition: int) -> int:
        """Where the log of the states ends."""
        return self._replicas.partition(SHARE_STATE_TOPIC, partition).log.log_end_offset

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete, as DeleteRecords does."""
        results = self._replicas.delete_records(
            [(SHARE_STATE_TOPIC, partition, offset)],
            _DELETE_TIMEOUT_MS,
            _note,
            allows_internal=True,
        )
        if results is not None:
            _note(results)


class BrokerPartitionEnds:
    """A `coordinator.group.share.ports.PartitionEnds`: asks the leader, wherever it is."""

    def __init__(
        self, replicas: ReplicaManager, metadata: KRaftMetadataCache, context: PeerContext
    ) -> None:
        self._calls: PeerCalls[End, int] = PeerCalls(
            Ends(replicas, metadata), context, context.make_peers(), tries_max=TRIES_MAX
        )
        self.next_deadline_ms = self._calls.next_deadline_ms
        self.tick = self._calls.tick
        self.close = self._calls.close

    def end_offset(
        self, topic: str, partition: int, done: Callable[[int | ApiError], None]
    ) -> None:
        """The high watermark."""
        self._calls.ask(End(topic, partition), done)


def _note(results: list[DeleteResult]) -> None:
    for result in results:
        if result.error is not None:
            _logger.warning("%s could not be shortened: %s", SHARE_STATE_TOPIC, result.error)
