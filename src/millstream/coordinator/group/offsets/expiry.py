"""Which offsets are kept for nobody any more. Looks, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.group.offsets.records import NO_EXPIRY, offset_tombstone

if TYPE_CHECKING:
    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.group.offsets.tables import CommittedOffsets, PendingOffsets
    from millstream.protocol.messages.classic_group_records import OffsetCommitValue


class Expired(NamedTuple):
    """What a look at one group found."""

    tombstones: list[CoordinatorRecord]
    is_all: bool
    """Whether the group has no offsets when these are gone, nor any in open transactions."""


def expired_offsets(
    group: Group,
    committed: CommittedOffsets,
    pending: PendingOffsets,
    wall_ms: int,
    retention_ms: int,
) -> Expired:
    """The offsets of a group that nobody needs, each with its tombstone."""
    tombstones: list[CoordinatorRecord] = []
    is_all = not pending.has_group(group.group_id)
    for topic, by_partition in committed.of_group(group.group_id).items():
        if group.is_subscribed_to(topic):
            is_all = False
            continue
        for partition, value in by_partition.items():
            if _is_expired(group, value, wall_ms, retention_ms) and not pending.has(
                group.group_id, topic, partition
            ):
                tombstones.append(offset_tombstone(group.group_id, topic, partition))
            else:
                is_all = False
    return Expired(tombstones, is_all)


def _is_expired(group: Group, value: OffsetCommitValue, wall_ms: int, retention_ms: int) -> bool:
    start_ms = group.retention_start_ms(value.commit_timestamp)
    if start_ms is None:
        return False
    if value.expire_timestamp != NO_EXPIRY:
        return wall_ms >= value.expire_timestamp
    return wall_ms - start_ms >= retention_ms
