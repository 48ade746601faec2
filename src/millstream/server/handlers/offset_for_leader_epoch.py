"""OffsetForLeaderEpoch 2-4: where a leader epoch ended, to find out whether a log was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from millstream.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.exchange import Exchange


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, exchange: Exchange, replicas: ReplicaManager
) -> OffsetForLeaderEpochResponse:
    """Look each partition up; each succeeds or fails for itself."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(topic.topic, asked, replicas) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def fail_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, error: ApiError, version: int
) -> OffsetForLeaderEpochResponse:
    """Every partition gets the error."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_failed(asked, error) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(
    topic: str, asked: OffsetForLeaderPartition, replicas: ReplicaManager
) -> EpochEndOffset:
    try:
        end = replicas.end_of_epoch(
            topic, asked.partition, asked.leader_epoch, asked.current_leader_epoch
        )
    except ApiError as error:
        return _failed(asked, error)
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )


def _failed(asked: OffsetForLeaderPartition, error: ApiError) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=error.code)
