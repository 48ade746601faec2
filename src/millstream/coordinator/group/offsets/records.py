"""The records of offsets, in the versions that Kafka 4.3 writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.classic_group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from millstream.types import Uuid

NO_EXPIRY: Final = -1
_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1
"""The only one that says when an offset expires: from clients that ask for a retention."""


def offset_record(
    group_id: str,
    topic: str,
    topic_id: Uuid,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_ms: int,
    expire_ms: int = NO_EXPIRY,
) -> CoordinatorRecord:
    """A group has read a partition up to an offset."""
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_ms,
            expire_timestamp=expire_ms,
            topic_id=topic_id,
        ),
        _VERSION if expire_ms == NO_EXPIRY else _VERSION_WITH_EXPIRY,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """A group's offset of a partition is deleted."""
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), None
    )


def from_legacy(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """A record of the oldest form, which logs of old clusters may have."""
    modern = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return modern, None
    return modern, OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
