"""AlterReplicaLogDirs 1-2: move partitions to another directory of this broker.

The answer says that the move has begun; DescribeLogDirs shows how far it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from millstream.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
    from millstream.server.exchange import Exchange
    from millstream.server.replica_moves import ReplicaMoves


def handle_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, exchange: Exchange, moves: ReplicaMoves
) -> AlterReplicaLogDirsResponse:
    """Begin each move; each succeeds or fails for itself."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            result = topics.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            result.partitions += [
                AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=_begin(topic.name, index, directory.path, moves),
                )
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def fail_alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, error: ApiError, version: int
) -> AlterReplicaLogDirsResponse:
    """Every partition gets the error."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _begin(topic: str, index: int, path: str, moves: ReplicaMoves) -> int:
    try:
        moves.begin(topic, index, path)
    except ApiError as error:
        return error.code
    return 0
