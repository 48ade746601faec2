"""TxnOffsetCommit 0-5: how far a group will have read when a transaction commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from millstream.server.exchange import Exchange

_LOADING_SINCE: Final = 2
"""Older producers stop when they are told that the coordinator is loading."""


def handle_txn_offset_commit(
    request: TxnOffsetCommitRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Store it, to be in force if the transaction commits."""
    done = answering(exchange, request, fail_txn_offset_commit)
    groups.commit_txn_offsets(request, caller_of(exchange), done)


def fail_txn_offset_commit(
    request: TxnOffsetCommitRequest, error: ApiError, version: int
) -> TxnOffsetCommitResponse:
    """Every partition gets the error."""
    code = error.code
    if version < _LOADING_SINCE and code == CoordinatorLoadInProgress.code:
        code = CoordinatorNotAvailable.code
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
