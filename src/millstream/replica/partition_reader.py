"""How a partition is read: records, offsets by time, ends of epochs, producers.

`ReplicaManager` asks, having found the partition. What a client may read follows the rules of
Fetch, ListOffsets and OffsetForLeaderEpoch; nothing here changes a partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import OffsetNotAvailable, OffsetOutOfRange, UnsupportedVersion
from millstream.replica.fetch_partition import FetchPartitionData
from millstream.replica.fetch_state import UNKNOWN
from millstream.replica.partition import NO_EPOCH
from millstream.storage.log.epoch_cache import UNDEFINED_END, UNDEFINED_EPOCH
from millstream.storage.log.log_results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    FetchIsolation,
)
from millstream.storage.log.time_lookup import TimedRecord

if TYPE_CHECKING:
    from millstream.replica.fetch_partition import FetchPartition
    from millstream.replica.partition import Partition
    from millstream.storage.log.epoch_cache import EpochEnd

NOT_FOUND: Final = TimedRecord(NO_TIMESTAMP, UNKNOWN, UNDEFINED_EPOCH)
"""ListOffsets: no record is that late."""

ENOUGH: Final = 1 << 62
"""As many bytes as a fetch may wait for: it is to be answered."""

_SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def check_special_timestamp(timestamp: int, version: int) -> None:
    """Raise if a version of ListOffsets does not know a special timestamp."""
    if timestamp < EARLIEST_TIMESTAMP and version < _SINCE.get(timestamp, 1 << 15):
        raise UnsupportedVersion(f"ListOffsets {version} has no timestamp {timestamp}")


class ReadLimits(NamedTuple):
    """How the partitions of a fetch may be read."""

    isolation: FetchIsolation
    needs_leader: bool


REPLICA_LIMITS: Final = ReadLimits(FetchIsolation.LOG_END, needs_leader=True)
_UNCOMMITTED: Final = ReadLimits(FetchIsolation.HIGH_WATERMARK, needs_leader=False)
_UNCOMMITTED_OF_LEADER: Final = ReadLimits(FetchIsolation.HIGH_WATERMARK, needs_leader=True)


def consumer_limits(isolation: FetchIsolation, *, needs_leader: bool) -> ReadLimits:
    """What a consumer may read; nearly always a value that is there already."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return _UNCOMMITTED_OF_LEADER if needs_leader else _UNCOMMITTED
    return ReadLimits(isolation, needs_leader)


def read_partition(
    partition: Partition,
    asked: FetchPartition,
    limits: ReadLimits,
    bytes_max: int,
    *,
    must_progress: bool,
) -> FetchPartitionData:
    """The records from the fetch offset on, as far as the client may see them."""
    # Nearly every fetch is of a leader and right about it.
    if not partition.is_leader or asked.current_leader_epoch not in (
        NO_EPOCH,
        partition.leader_epoch,
    ):
        partition.require_role(asked.current_leader_epoch, needs_leader=limits.needs_leader)
    log = partition.log
    # Before the read: whatever is appended meanwhile is not promised by this answer.
    high_watermark, last_stable = log.high_watermark, log.last_stable_offset
    log_start = log.log_start_offset
    if asked.last_fetched_epoch != UNKNOWN:
        diverging = find_divergence(partition, asked)
        if diverging is not None:
            return FetchPartitionData(
                None, high_watermark, last_stable, log_start, diverging_epoch=diverging
            )
    if asked.partition_max_bytes < bytes_max:
        bytes_max = asked.partition_max_bytes
    found = log.read(asked.fetch_offset, bytes_max, limits.isolation, must_progress=must_progress)
    asked.start = found.start
    records = found.records
    if records is None or found.is_first_batch_incomplete:
        # Part of a batch is of no use to anybody; it comes whole when it is its turn.
        is_withheld = asked.fetch_offset < readable_end(partition, limits.isolation)
        return FetchPartitionData(
            None,
            high_watermark,
            last_stable,
            log_start,
            None,
            found.aborted_transactions,
            is_withheld=is_withheld,
        )
    return FetchPartitionData(
        None, high_watermark, last_stable, log_start, records, found.aborted_transactions
    )


def find_divergence(partition: Partition, asked: FetchPartition) -> EpochEnd | None:
    """Where the client's log parts from this one; None if it does not."""
    log = partition.log
    end = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if end == UNDEFINED_END:
        raise OffsetOutOfRange(
            f"{partition.name} cannot tell where epoch {asked.last_fetched_epoch} ended"
        )
    if asked.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"offset {asked.fetch_offset} of {partition.name} is before the log's start, "
            f"{log.log_start_offset}"
        )
    is_diverging = end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset
    return end if is_diverging else None


def bytes_available(partition: Partition, asked: FetchPartition, limits: ReadLimits) -> int:
    """How many bytes a waiting fetch would get of a partition; `ENOUGH` if it must be answered.

    The errors of `read_partition` are raised here too.
    """
    partition.require_role(asked.current_leader_epoch, needs_leader=limits.needs_leader)
    log = partition.log
    if asked.last_fetched_epoch != UNKNOWN and find_divergence(partition, asked) is not None:
        return ENOUGH
    bound = readable_end(partition, limits.isolation)
    if asked.fetch_offset > log.log_end_offset or asked.fetch_offset < log.log_start_offset:
        return ENOUGH
    if asked.fetch_offset >= bound:
        return 0
    start, end = asked.start, log.locate(bound)
    if start is None or start.is_on_older_segment_than(end) or end.is_on_older_segment_than(start):
        return ENOUGH
    return min(start.bytes_before(end), asked.partition_max_bytes)


def readable_end(partition: Partition, isolation: FetchIsolation) -> int:
    """The first offset that a reader may not read."""
    log = partition.log
    if isolation is FetchIsolation.LOG_END:
        return log.log_end_offset
    is_uncommitted = isolation is FetchIsolation.HIGH_WATERMARK
    return log.high_watermark if is_uncommitted else log.last_stable_offset


def list_offset(
    partition: Partition,
    timestamp: int,
    isolation: FetchIsolation,
    current_leader_epoch: int = NO_EPOCH,
    *,
    needs_leader: bool = True,
) -> TimedRecord:
    """The first record at or after a time, or what a special timestamp names (ListOffsets).

    Right after an election the high watermark may lag behind what the last leader had committed;
    until it has caught up, a consumer is told to ask again rather than something older.
    """
    partition.require_role(current_leader_epoch, needs_leader=needs_leader)
    log = partition.log
    is_lagging = (
        partition.is_leader
        and isolation is not FetchIsolation.LOG_END
        and partition.leader_epoch_start > log.high_watermark
    )
    if timestamp == LATEST_TIMESTAMP:
        if is_lagging:
            raise _lagging(partition)
        end = readable_end(partition, isolation)
        return TimedRecord(NO_TIMESTAMP, end, partition.leader_epoch)
    found = log.offset_for_timestamp(timestamp, isolation)
    if found is not None:
        return found
    if is_lagging:
        raise _lagging(partition)
    return NOT_FOUND


def _lagging(partition: Partition) -> OffsetNotAvailable:
    return OffsetNotAvailable(
        f"{partition.name}: the high watermark {partition.log.high_watermark} has not reached "
        f"{partition.leader_epoch_start}, where leader epoch {partition.leader_epoch} began"
    )


def end_of_epoch(
    partition: Partition, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
) -> EpochEnd:
    """The largest epoch not above one, and where it ended (OffsetForLeaderEpoch)."""
    partition.require_role(current_leader_epoch, needs_leader=True)
    return partition.log.end_offset_for_epoch(leader_epoch)
