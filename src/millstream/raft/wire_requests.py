"""The requests that raft sends, as messages of the protocol.

Each function takes what the rules know and gives the message for the one partition there is.
Versions are the network's concern: these are valid in the newest of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from millstream.raft.config import FETCH_BYTES_MAX, FETCH_WAIT_MAX_MS
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.raft.replica import LocalNode
    from millstream.raft.voters import ReplicaKey, Voter
    from millstream.types import OffsetAndEpoch

METADATA_TOPIC = "__cluster_metadata"
"""The topic whose only partition is the metadata log."""

METADATA_PARTITION = 0
"""The only partition of it."""

SOFTWARE_NAME = "millstream-raft"
"""How the probe of a new voter introduces itself."""


def vote_request(
    local: LocalNode, voter: ReplicaKey, epoch: int, end: OffsetAndEpoch, *, is_pre_vote: bool
) -> VoteRequest:
    """Ask a voter for its vote, or whether it would give it."""
    partition = vote.VoteRequestPartitionData(
        partition_index=METADATA_PARTITION,
        replica_epoch=epoch,
        replica_id=local.id,
        replica_directory_id=local.key.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=is_pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=local.cluster_id, voter_id=voter.id, topics=[topic])


def begin_quorum_epoch_request(
    local: LocalNode, voter: ReplicaKey, epoch: int
) -> BeginQuorumEpochRequest:
    """Tell a voter that we lead."""
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        partition_index=METADATA_PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=local.id,
        leader_epoch=epoch,
    )
    topic = begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    return BeginQuorumEpochRequest(
        cluster_id=local.cluster_id,
        voter_id=voter.id,
        topics=[topic],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=name, host=where.host, port=where.port)
            for name, where in local.endpoints.items()
        ],
    )


def end_quorum_epoch_request(
    local: LocalNode, epoch: int, successors: Sequence[ReplicaKey]
) -> EndQuorumEpochRequest:
    """Tell a voter that we lead no more, and who should, best first."""
    partition = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=local.id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id
            )
            for key in successors
        ],
    )
    topic = end_quorum_epoch.EndQuorumEpochRequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    return EndQuorumEpochRequest(
        cluster_id=local.cluster_id,
        topics=[topic],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=name, host=where.host, port=where.port)
            for name, where in local.endpoints.items()
        ],
    )


def fetch_request(
    local: LocalNode,
    epoch: int,
    end: OffsetAndEpoch,
    high_watermark: int,
    bytes_max: int = FETCH_BYTES_MAX,
) -> FetchRequest:
    """Ask for what follows our log; it says at the same time how far our log goes."""
    partition = fetch.FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        partition_max_bytes=bytes_max,
        replica_directory_id=local.key.directory_id,
        high_watermark=high_watermark,
    )
    topic = fetch.FetchTopic(
        topic=METADATA_TOPIC, topic_id=Uuid.METADATA_TOPIC, partitions=[partition]
    )
    return FetchRequest(
        cluster_id=local.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=local.id),
        max_wait_ms=FETCH_WAIT_MAX_MS,
        max_bytes=bytes_max,
        topics=[topic],
    )


def fetch_snapshot_request(
    local: LocalNode,
    epoch: int,
    snapshot_id: OffsetAndEpoch,
    position: int,
    bytes_max: int = FETCH_BYTES_MAX,
) -> FetchSnapshotRequest:
    """Ask for the next piece of a snapshot."""
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=METADATA_PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=local.key.directory_id,
    )
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    return FetchSnapshotRequest(
        cluster_id=local.cluster_id,
        replica_id=local.id,
        max_bytes=bytes_max,
        topics=[topic],
    )


def api_versions_request() -> ApiVersionsRequest:
    """Ask a new voter what it supports."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")


def update_voter_request(local: LocalNode, epoch: int, voter: Voter) -> UpdateRaftVoterRequest:
    """Tell the leader our endpoints and what we support."""
    return UpdateRaftVoterRequest(
        cluster_id=local.cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[
            update_raft_voter.Listener(name=name, host=where.host, port=where.port)
            for name, where in voter.endpoints.items()
        ],
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=voter.supported.minimum,
            max_supported_version=voter.supported.maximum,
        ),
    )


def add_voter_request(local: LocalNode, timeout_ms: int) -> AddRaftVoterRequest:
    """Ask the leader to make us a voter; the log will tell when it is done."""
    return AddRaftVoterRequest(
        cluster_id=local.cluster_id,
        timeout_ms=timeout_ms,
        voter_id=local.id,
        voter_directory_id=local.key.directory_id,
        listeners=[
            add_raft_voter.Listener(name=name, host=where.host, port=where.port)
            for name, where in local.endpoints.items()
        ],
        ack_when_committed=False,
    )


def remove_voter_request(local: LocalNode, key: ReplicaKey) -> RemoveRaftVoterRequest:
    """Ask the leader to remove a voter: our own id with a directory we no longer have."""
    return RemoveRaftVoterRequest(
        cluster_id=local.cluster_id, voter_id=key.id, voter_directory_id=key.directory_id
    )
