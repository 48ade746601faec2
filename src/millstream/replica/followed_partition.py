"""How far a follower is on its way along a leader's log: one partition of a `ReplicaFetcher`.

Pure state and small rules: what is asked of the leader next, whether it may be asked now, and where
a log is to be cut that has parted from the leader's.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from millstream.storage.log.epoch_cache import UNDEFINED_END, UNDEFINED_EPOCH, UNDEFINED_OFFSET

if TYPE_CHECKING:
    from millstream.replica.partition import Partition
    from millstream.storage.log.epoch_cache import EpochEnd
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.types import TopicPartition, Uuid


class FollowState(Enum):
    """What a partition waits for."""

    FETCHING = "fetching"
    BACKING_OFF = "backing off"
    """Something went wrong; it is fetched again later."""
    WRITING = "writing"
    """A disk is at work: the log is being cut, or records of a topic that waits for the disk are
    being synced. The fetch offset is an acknowledgement, so none is sent before."""
    ASKING_END = "asking where the leader's log ends"
    ASKING_START = "asking where the leader's log begins"
    FAILED = "failed"
    """Fetched again only when the metadata says something new about the partition."""


class FollowerFetch(NamedTuple):
    """What a follower asks for of one partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    last_epoch: int
    """The epoch of the last record it has; -1 if it knows none."""
    log_start_offset: int


class FollowedPartition:
    """One partition on its way."""

    __slots__ = ("leader_epoch", "partition", "resume_ms", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        """The leader epoch that is followed: an answer to a fetch of another one counts for
        nothing."""
        self.state = FollowState.FETCHING
        self.resume_ms = 0
        """When a partition that backs off is fetched again."""

    @property
    def name(self) -> TopicPartition:
        """The partition's name."""
        return self.partition.name

    def fetch(self) -> FollowerFetch:
        """What to ask for now: everything from the end of the log on."""
        log = self.partition.log
        return FollowerFetch(
            self.partition.topic_id,
            log.log_end_offset,
            self.leader_epoch,
            log.epochs.latest_epoch,
            log.log_start_offset,
        )


def truncation_offset(log: UnifiedLog, diverging: EpochEnd) -> int:
    """Where to cut a log, given the largest epoch that the leader has of ours, and its end there.

    If the leader's epoch is not ours, our own end of the nearest older one is as far as both can
    agree; the next fetch finds out whether they do.
    """
    end = log.log_end_offset
    if diverging.end_offset == UNDEFINED_OFFSET:
        return log.high_watermark
    if diverging.epoch == UNDEFINED_EPOCH:
        return min(diverging.end_offset, end)
    own = log.end_offset_for_epoch(diverging.epoch)
    if own == UNDEFINED_END:
        return min(diverging.end_offset, end)
    if own.epoch != diverging.epoch:
        return min(own.end_offset, end)
    return min(diverging.end_offset, own.end_offset, end)
