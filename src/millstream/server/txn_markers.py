"""Markers: the records that end a transaction in the partitions that this broker leads.

WriteTxnMarkers and this broker's own transaction coordinator write through here. A partition of
`__consumer_offsets` is the group coordinator's: its pending offsets become true or are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
)
from millstream.metadata.topic_names import GROUP_OFFSETS_TOPIC
from millstream.records import ControlType, EndTxnMarker, end_txn_marker
from millstream.replica.append_service import ACKS_ALL
from millstream.storage.log.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.clock import Clock
    from millstream.coordinator.decision import ProducerStamp
    from millstream.replica.append_service import AppendResult
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.types import TopicPartition

_TIMEOUT_MS: Final = 30_000
_NO_COORDINATOR: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class Marker(NamedTuple):
    """The end of one transaction."""

    producer: ProducerStamp
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class TransactionalOffsets(Protocol):
    """Offsets that were committed in transactions, by partition of `__consumer_offsets`."""

    def end_transaction(
        self,
        partition: int,
        stamp: ProducerStamp,
        *,
        coordinator_epoch: int,
        transaction_version: int,
        is_committed: bool,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Make them true, or drop them."""
        ...


class MarkerWriter:
    """Writes markers to the logs of this broker."""

    def __init__(
        self, replicas: ReplicaManager, offsets: TransactionalOffsets, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._clock = clock

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Callable[[list[tuple[TopicPartition, ApiError | None]]], None],
    ) -> None:
        """Tell some partitions; `done` gets what became of each, perhaps before the return."""
        results: dict[TopicPartition, ApiError | None] = {}

        def finished(partition: TopicPartition, error: ApiError | None) -> None:
            results[partition] = error
            if len(results) == len(partitions):
                done([(each, results[each]) for each in partitions])

        if not partitions:
            done([])
        plain = [each for each in partitions if each.topic != GROUP_OFFSETS_TOPIC]
        for each in partitions:
            if each.topic == GROUP_OFFSETS_TOPIC:
                self._end_offsets(marker, each, finished)
        if plain:
            self._append(marker, plain, finished)

    def _end_offsets(
        self,
        marker: Marker,
        partition: TopicPartition,
        finished: Callable[[TopicPartition, ApiError | None], None],
    ) -> None:
        def ended(error: ApiError | None) -> None:
            if isinstance(error, _NO_COORDINATOR):
                error = NotLeaderOrFollower(str(error))
            finished(partition, error)

        self._offsets.end_transaction(
            partition.partition,
            marker.producer,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            is_committed=marker.is_commit,
            done=ended,
        )

    def _append(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        finished: Callable[[TopicPartition, ApiError | None], None],
    ) -> None:
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        batch = end_txn_marker(
            EndTxnMarker(kind, marker.coordinator_epoch),
            producer_id=marker.producer.producer_id,
            producer_epoch=marker.producer.producer_epoch,
            timestamp=self._clock.wall_ms(),
        )

        def appended(results: list[AppendResult]) -> None:
            for partition, result in zip(partitions, results, strict=True):
                finished(partition, result.error)

        results = self._replicas.append(
            # Each log numbers its own copy in place.
            [(each.topic, each.partition, bytearray(batch)) for each in partitions],
            ACKS_ALL,
            _TIMEOUT_MS,
            appended,
            origin=AppendOrigin.COORDINATOR,
            allows_internal=True,
            transaction_version=marker.transaction_version,
        )
        if results is not None:
            appended(results)
