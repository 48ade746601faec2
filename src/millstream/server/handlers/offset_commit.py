"""OffsetCommit 2-10: how far a group has read; by topic id from version 10 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.offset_commit import OffsetCommitRequest
    from millstream.server.exchange import Exchange


def handle_offset_commit(
    request: OffsetCommitRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Store it."""
    done = answering(exchange, request, fail_offset_commit)
    groups.commit_offsets(request, caller_of(exchange), done)


def fail_offset_commit(
    request: OffsetCommitRequest, error: ApiError, version: int
) -> OffsetCommitResponse:
    """Every partition gets the error."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error.code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
