"""The partitions of an internal topic as a coordinator wants them: on the replica manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.ports import Appended, LogBounds
from millstream.errors import ApiError, NotLeaderOrFollower
from millstream.replica.append_service import ACKS_ALL
from millstream.storage.log.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.replica.append_service import AppendResult
    from millstream.replica.partition import Partition
    from millstream.replica.replica_manager import ReplicaManager


class CoordinatorStore:
    """A `coordinator.ports.PartitionStore`."""

    __slots__ = ("_replicas", "_topic")

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self._topic = topic
        self._replicas = replicas

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        done: Callable[[ApiError | None], None],
        *,
        timeout_ms: int,
        transaction_version: int = 2,
    ) -> Appended:
        """Write a batch as `acks=all` does."""
        local = self._leader(partition, leader_epoch)

        def answered(results: list[AppendResult]) -> None:
            done(results[0].error)

        results = self._replicas.append(
            [(self._topic, partition, batch)],
            ACKS_ALL,
            timeout_ms,
            answered,
            origin=AppendOrigin.COORDINATOR,
            allows_internal=True,
            transaction_version=transaction_version,
        )
        if results is not None and results[0].error is not None:
            raise results[0].error
        return Appended(local.log.log_end_offset, results is not None)

    def bounds(self, partition: int, leader_epoch: int) -> LogBounds:
        """What there is to load."""
        log = self._leader(partition, leader_epoch).log
        return LogBounds(log.log_start_offset, log.log_end_offset)

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        """Whole batches from an offset on."""
        log = self._replicas.partition(self._topic, partition).log
        found = log.read(max(offset, log.log_start_offset), bytes_max)
        return b"" if found.records is None else found.records.read()

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Whether everything before an offset is safe."""
        try:
            return self._replicas.partition(self._topic, partition).log.high_watermark >= end_offset
        except ApiError:
            return False

    def batch_size_max(self, partition: int) -> int:
        """The topic's `max.message.bytes`."""
        return self._replicas.partition(self._topic, partition).log.config.max_message_bytes

    def _leader(self, partition: int, leader_epoch: int) -> Partition:
        local = self._replicas.partition(self._topic, partition)
        if not local.is_leader:
            raise local.refusal()
        if local.leader_epoch != leader_epoch:
            raise NotLeaderOrFollower(
                f"{local.name} is in epoch {local.leader_epoch}, not {leader_epoch}"
            )
        return local
