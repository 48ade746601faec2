"""Requests of every version are understood, and answered in a way that version can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.protocol.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    describe_quorum,
)
from millstream.raft import wire_requests
from millstream.raft.wire_requests import METADATA_TOPIC
from millstream.types import OffsetAndEpoch, Uuid
from tests.unit.raft.bench import Bench, key_of, node, voter

if TYPE_CHECKING:
    from millstream.protocol.message import Message

FETCH_OF_A_REPLICA_SINCE = 12


def request_of(kind: type[Message], epoch: int, version: int) -> Message:
    """A request that makes sense in an epoch, as a node of that version would send it."""
    end = OffsetAndEpoch(0, 0)
    requests: dict[type[Message], Message] = {
        VoteRequest: wire_requests.vote_request(node(2), key_of(1), epoch, end, is_pre_vote=False),
        BeginQuorumEpochRequest: wire_requests.begin_quorum_epoch_request(
            node(2), key_of(1), epoch
        ),
        EndQuorumEpochRequest: wire_requests.end_quorum_epoch_request(node(2), epoch, [key_of(1)]),
        FetchRequest: wire_requests.fetch_request(node(2), epoch, end, 0),
        FetchSnapshotRequest: wire_requests.fetch_snapshot_request(node(2), epoch, end, 0),
        UpdateRaftVoterRequest: wire_requests.update_voter_request(node(2), epoch, voter(2)),
        AddRaftVoterRequest: wire_requests.add_voter_request(node(4), 1_000),
        RemoveRaftVoterRequest: wire_requests.remove_voter_request(node(2), key_of(9)),
        DescribeQuorumRequest: DescribeQuorumRequest(
            topics=[
                describe_quorum.DescribeQuorumRequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[describe_quorum.DescribeQuorumRequestPartitionData()],
                )
            ]
        ),
    }
    request = requests[kind]
    if isinstance(request, FetchRequest) and version < 15:
        request.replica_state, request.replica_id = None, 2
    if isinstance(request, FetchRequest) and version < 13:
        request.topics[0].topic_id = Uuid.ZERO
    if isinstance(request, AddRaftVoterRequest) and version < 1:
        request.ack_when_committed = True
    return request


KINDS: list[type[Message]] = [
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateRaftVoterRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    DescribeQuorumRequest,
]
CASES = [
    (kind, version)
    for kind in KINDS
    for version in range(kind.VERSIONS.lowest, kind.VERSIONS.highest + 1)
    if kind is not FetchRequest or version >= FETCH_OF_A_REPLICA_SINCE
]


@pytest.mark.parametrize(
    ("kind", "version"), CASES, ids=[f"{kind.__name__}-{version}" for kind, version in CASES]
)
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_every_version_is_answered_in_kind(kind: type[Message], version: int, role: str) -> None:
    bench = Bench()
    if role == "leader":
        bench.lead()
    else:
        bench.follow(leader_id=2, epoch=1)
    data = request_of(kind, 1, version).encode(version)

    response = bench.receive(kind.decode(data, version), version)

    assert response is not None
    assert response.KEY == kind.KEY
    decoded = type(response).decode(response.encode(version), version)
    assert type(decoded) is type(response)
