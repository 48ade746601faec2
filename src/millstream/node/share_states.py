"""What share groups need of the rest of a broker, as long as every coordinator is in this process.

`BrokerCoordinators` makes these for the group coordinator, the share coordinator and the leaders
of share partitions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.storage.log.log_results import LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import (
        ShareKey,
        ShareState,
        StateChange,
        StateSummary,
    )
    from millstream.replica.record_deletion import DeleteResult
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.internal_topics import InternalTopics

_logger = logging.getLogger(__name__)

_DELETE_TIMEOUT_MS = 30_000


class LocalShareStates:
    """A `coordinator.share.ports.ShareStateStore` for a coordinator in the same process.

    The topic of the states is made when the first share partition begins.
    """

    def __init__(self, shares: ShareCoordinator, topics: InternalTopics) -> None:
        self._shares = shares
        self._topics = topics

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
                self._shares.initialize(key, state_epoch, start_offset, done)

        self._topics.ensure(SHARE_STATE_TOPIC, ensured)

    def read(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | ApiError], None]
    ) -> None:
        """What is known of a share partition."""
        self._shares.read(key, leader_epoch, done)

    def write(
        self, key: ShareKey, change: StateChange, done: Callable[[ApiError | None], None]
    ) -> None:
        """Keep what the leader says."""
        self._shares.write(key, change, done)

    def delete(self, key: ShareKey, done: Callable[[ApiError | None], None]) -> None:
        """Forget a share partition."""
        self._shares.delete(key, done)

    def summarize(
        self, key: ShareKey, leader_epoch: int, done: Callable[[StateSummary | ApiError], None]
    ) -> None:
        """How far a share partition has come."""
        self._shares.summarize(key, leader_epoch, done)


class LocalStateLog:
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


class LocalPartitionEnds:
    """A `coordinator.group.share.ports.PartitionEnds` for partitions that this broker leads."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def end_offset(
        self, topic: str, partition: int, done: Callable[[int | ApiError], None]
    ) -> None:
        """The high watermark."""
        try:
            found = self._replicas.list_offset(topic, partition, LATEST_TIMESTAMP)
        except ApiError as error:
            done(error)
        else:
            done(found.offset)


def _note(results: list[DeleteResult]) -> None:
    for result in results:
        if result.error is not None:
            _logger.warning("%s could not be shortened: %s", SHARE_STATE_TOPIC, result.error)
