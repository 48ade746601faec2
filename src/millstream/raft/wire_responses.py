"""The answers that raft gives and what it reads out of others' answers.

Which error, is decided by the rules; here it gets its place in the message. An answer names the
leader and, in the versions that can, the leader's endpoint on the asker's listener.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import NO_ERROR
from millstream.protocol.messages import (
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    VoteResponse,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from millstream.raft.wire_requests import METADATA_PARTITION, METADATA_TOPIC
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.raft.voters import Endpoint
    from millstream.types import OffsetAndEpoch

T = TypeVar("T")

NO_LEADER = -1
"""The leader's id on the wire when nobody leads."""

_FETCH_TELLS_LEADER = 12
"""From this version on a fetch response has room for the leader."""


@dataclass(frozen=True, slots=True)
class LeaderFacts:
    """Who leads, as told to others or by others."""

    epoch: int
    leader_id: int | None = None
    endpoint: Endpoint | None = None

    @property
    def wire_id(self) -> int:
        """The leader's id as messages have it."""
        return NO_LEADER if self.leader_id is None else self.leader_id

    def endpoints(self, listener: str) -> Mapping[str, Endpoint]:
        """The endpoint under the listener's name; nothing where it was not told."""
        return {} if self.endpoint is None else {listener: self.endpoint}


def vote_response(
    leader: LeaderFacts, version: int, error_code: int = NO_ERROR, *, is_granted: bool = False
) -> VoteResponse:
    """Answer a request for a vote."""
    partition = vote.VoteResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error_code,
        leader_id=leader.wire_id,
        leader_epoch=leader.epoch,
        vote_granted=is_granted,
    )
    topic = vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = _endpoints(vote.NodeEndpoint, leader, version >= 1)
    return VoteResponse(topics=[topic], node_endpoints=endpoints)


def begin_quorum_epoch_response(
    leader: LeaderFacts, version: int, error_code: int = NO_ERROR
) -> BeginQuorumEpochResponse:
    """Answer a leader that introduces itself."""
    partition = begin_quorum_epoch.BeginQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error_code,
        leader_id=leader.wire_id,
        leader_epoch=leader.epoch,
    )
    topic = begin_quorum_epoch.BeginQuorumEpochResponseTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    endpoints = _endpoints(begin_quorum_epoch.NodeEndpoint, leader, version >= 1)
    return BeginQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def end_quorum_epoch_response(
    leader: LeaderFacts, version: int, error_code: int = NO_ERROR
) -> EndQuorumEpochResponse:
    """Answer a leader that takes its leave."""
    partition = end_quorum_epoch.EndQuorumEpochResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error_code,
        leader_id=leader.wire_id,
        leader_epoch=leader.epoch,
    )
    topic = end_quorum_epoch.EndQuorumEpochResponseTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    endpoints = _endpoints(end_quorum_epoch.NodeEndpoint, leader, version >= 1)
    return EndQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def fetch_response(
    leader: LeaderFacts,
    version: int,
    error_code: int = NO_ERROR,
    *,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    """Answer a fetch; the records, if there are any, are put in by the driver."""
    partition = fetch.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error_code,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        records=b"",
    )
    if version >= _FETCH_TELLS_LEADER:
        partition.current_leader = fetch.LeaderIdAndEpoch(
            leader_id=leader.wire_id, leader_epoch=leader.epoch
        )
    if diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        )
    topic = fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=Uuid.METADATA_TOPIC, partitions=[partition]
    )
    endpoints = _endpoints(fetch.NodeEndpoint, leader, version >= 16)
    return FetchResponse(responses=[topic], node_endpoints=endpoints)


def fetch_snapshot_response(
    leader: LeaderFacts,
    version: int,
    error_code: int = NO_ERROR,
    *,
    snapshot_id: OffsetAndEpoch | None = None,
    size: int = 0,
    position: int = 0,
) -> FetchSnapshotResponse:
    """Answer a snapshot fetch; the bytes are put in by the driver."""
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=METADATA_PARTITION,
        error_code=error_code,
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=leader.wire_id, leader_epoch=leader.epoch
        ),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    if snapshot_id is not None:
        partition.snapshot_id = fetch_snapshot.FetchSnapshotResponseSnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    endpoints = _endpoints(fetch_snapshot.NodeEndpoint, leader, version >= 1)
    return FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints)


def _endpoints(node_endpoint: Callable[..., T], leader: LeaderFacts, has_field: bool) -> list[T]:
    if leader.endpoint is None or not has_field:
        return []
    where = leader.endpoint
    return [node_endpoint(node_id=leader.wire_id, host=where.host, port=where.port)]
