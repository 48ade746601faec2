"""The records of offsets, in the versions that Kafka 4.3 writes."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.classic_group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.protocol.records_framing import GROUP_RECORDS
from millstream.types import Uuid

NO_EXPIRY: Final = -1
EXPIRY_MAX: Final = 2**63 - 1
"""The last moment that a record can name."""
_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1
"""The only one that says when an offset expires: from clients that ask for a retention."""
# Version, offset, leader epoch, a text of no bytes, time of the commit, one tag: which, its length,
# and the topic's id.
_VALUE: Final = Struct(">hqiBqBBB16s")
_new = OffsetCommitValue.__new__
_EMPTY, _ONE_TAG, _TOPIC_ID_TAG, _TOPIC_ID_BYTES = 1, 1, 0, 16


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
    # The same as with the constructor, in a third of the time: no other record is as frequent.
    value = _new(OffsetCommitValue)
    value.offset = offset
    value.leader_epoch = leader_epoch
    value.metadata = metadata
    value.commit_timestamp = commit_ms
    value.expire_timestamp = expire_ms
    value.topic_id = topic_id
    value.unknown_tags = ()
    key, key_bytes = _key(group_id, topic, partition)
    if expire_ms != NO_EXPIRY:
        return CoordinatorRecord(key, value, _VERSION_WITH_EXPIRY)
    if metadata or topic_id == Uuid.ZERO:
        return CoordinatorRecord(key, value, _VERSION)
    value_bytes = _VALUE.pack(
        _VERSION,
        offset,
        leader_epoch,
        _EMPTY,
        commit_ms,
        _ONE_TAG,
        _TOPIC_ID_TAG,
        _TOPIC_ID_BYTES,
        topic_id,
    )
    return tuple.__new__(CoordinatorRecord, (key, value, _VERSION, (key_bytes, value_bytes)))


@lru_cache(maxsize=16384)  # The same offsets are committed again and again.
def _key(group_id: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return key, GROUP_RECORDS.encode(key, None)[0]


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
