"""An offset commit as a value, in whatever form it came. Nothing here does anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from millstream.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
    )
    from millstream.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
    )

    PartitionCommit: TypeAlias = tuple[int, int, int, str | None]
    """Partition, offset, leader epoch, metadata."""
    TopicCommit: TypeAlias = tuple[str | bytes, Sequence[PartitionCommit]]
    """A topic by its name, or by the 16 bytes of its id."""
    ErrorCodes: TypeAlias = Sequence[int]
    """One for each partition of a commit, in its order; none at all if nothing was refused."""

TOPIC_IDS_SINCE = 10
"""The version of OffsetCommit that names topics by their ids."""
TXN_TOPIC_IDS_SINCE = 6


class OffsetCommit(NamedTuple):
    """How far a group has read, and who says so."""

    group_id: str
    generation: int
    """Or the member's epoch; negative from who is in no group."""
    member_id: str
    instance_id: str | None
    topics: Sequence[TopicCommit]
    retention_ms: int = -1


def commit_of(request: OffsetCommitRequest, version: int) -> OffsetCommit:
    """What an OffsetCommit asks for."""
    uses_ids = version >= TOPIC_IDS_SINCE
    return OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [_topic_commit(topic, uses_ids=uses_ids) for topic in request.topics],
        request.retention_time_ms,
    )


def commit_of_transaction(request: TxnOffsetCommitRequest, version: int) -> OffsetCommit:
    """What a TxnOffsetCommit asks for."""
    uses_ids = version >= TXN_TOPIC_IDS_SINCE
    return OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [_topic_commit(topic, uses_ids=uses_ids) for topic in request.topics],
    )


def _topic_commit(
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, *, uses_ids: bool
) -> TopicCommit:
    return topic.topic_id if uses_ids else topic.name, [
        (
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for each in topic.partitions
    ]


def commit_response(commit: OffsetCommit, codes: ErrorCodes) -> OffsetCommitResponse:
    """The answer to an OffsetCommit."""
    remaining = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=Uuid.ZERO if isinstance(topic, str) else Uuid(topic),
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each[0], error_code=next(remaining, 0)
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in commit.topics
        ]
    )


def txn_commit_response(commit: OffsetCommit, codes: ErrorCodes) -> TxnOffsetCommitResponse:
    """The answer to a TxnOffsetCommit."""
    remaining = iter(codes)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=Uuid.ZERO if isinstance(topic, str) else Uuid(topic),
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each[0], error_code=next(remaining, 0)
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in commit.topics
        ]
    )


def partition_count(commit: OffsetCommit) -> int:
    """How many partitions a commit names."""
    return sum(len(partitions) for _, partitions in commit.topics)
