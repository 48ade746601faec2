"""DescribeQuorum: the leader's view of the quorum, for people and their tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidRequest, NotLeaderOrFollower, UnknownTopicOrPartition
from millstream.protocol.messages import DescribeQuorumResponse, describe_quorum
from millstream.raft import checks
from millstream.raft.effects import Respond
from millstream.raft.leader_state import Leader
from millstream.raft.wire_requests import METADATA_PARTITION, METADATA_TOPIC

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.protocol.messages import DescribeQuorumRequest
    from millstream.raft.events import RequestReceived
    from millstream.raft.leader_state import ReplicaProgress
    from millstream.raft.replica import Replica

_NODES_SINCE = 2
_DIRECTORIES_SINCE = 2


def handle_describe_quorum(
    replica: Replica, event: RequestReceived, request: DescribeQuorumRequest
) -> None:
    """Answer who votes, who watches and how far each has come."""
    try:
        topic = checks.only(request.topics)
        partition = checks.only(topic.partitions)
    except InvalidRequest as error:
        replica.emit(Respond(event.token, DescribeQuorumResponse(error_code=error.code)))
        return
    is_metadata = topic.topic_name == METADATA_TOPIC
    if not is_metadata or partition.partition_index != METADATA_PARTITION:
        described = _failed(partition.partition_index, UnknownTopicOrPartition())
    elif isinstance(replica.state, Leader):
        described = _describe(replica, replica.state, event.version)
    else:
        described = _failed(partition.partition_index, NotLeaderOrFollower())
    response = DescribeQuorumResponse(
        topics=[
            describe_quorum.DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name, partitions=[described]
            )
        ]
    )
    if event.version >= _NODES_SINCE and not described.error_code:
        response.nodes = _nodes(replica)
    replica.emit(Respond(event.token, response))


def _failed(index: int, error: ApiError) -> describe_quorum.DescribeQuorumResponsePartitionData:
    return describe_quorum.DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=error.code,
        error_message=str(error),
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
    )


def _describe(
    replica: Replica, leader: Leader, version: int
) -> describe_quorum.DescribeQuorumResponsePartitionData:
    return describe_quorum.DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=[
            _progress(replica, leader, each, version) for each in leader.voters.values()
        ],
        observers=[_progress(replica, leader, each, version) for each in leader.observers.values()],
    )


def _progress(
    replica: Replica, leader: Leader, progress: ReplicaProgress, version: int
) -> describe_quorum.ReplicaState:
    described = describe_quorum.ReplicaState(
        replica_id=progress.key.id,
        log_end_offset=-1 if progress.end_offset is None else progress.end_offset,
        last_fetch_timestamp=progress.last_fetch_wall_ms,
        last_caught_up_timestamp=progress.last_caught_up_wall_ms,
    )
    if progress.key.id == leader.leader_id:
        described.log_end_offset = replica.outline.end_offset
        described.last_fetch_timestamp = replica.wall_ms
        described.last_caught_up_timestamp = replica.wall_ms
    if version >= _DIRECTORIES_SINCE:
        described.replica_directory_id = progress.key.directory_id
    return described


def _nodes(replica: Replica) -> list[describe_quorum.Node]:
    return [
        describe_quorum.Node(
            node_id=voter.id,
            listeners=[
                describe_quorum.Listener(name=name, host=where.host, port=where.port)
                for name, where in voter.endpoints.items()
            ],
        )
        for voter in replica.voters
    ]
