"""The records of share groups, to write and as they are read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.coordinator.group.share.assignor import Assignment
    from millstream.types import Uuid


class ShareSubscription(NamedTuple):
    """What a member asks for, and who it is."""

    client_id: str
    client_host: str
    rack: str | None = None
    topics: tuple[str, ...] = ()
    """Sorted names."""


class TopicShare(NamedTuple):
    """Partitions of a topic whose state is kept, or about to be."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """Which topics a share group has state of."""

    initializing: Mapping[Uuid, TopicShare] = {}  # Never changed.
    initialized: Mapping[Uuid, TopicShare] = {}  # Never changed.
    deleting: Mapping[Uuid, str] = {}  # Never changed.


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The epoch of a group."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), value)


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """A group without members is gone."""
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]


def member_record(group_id: str, member_id: str, asked: ShareSubscription) -> CoordinatorRecord:
    """What a member asks for."""
    value = ShareGroupMemberMetadataValue(
        rack_id=asked.rack,
        client_id=asked.client_id,
        client_host=asked.client_host,
        subscribed_topic_names=list(asked.topics),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def subscription_of(value: ShareGroupMemberMetadataValue) -> ShareSubscription:
    """Read what a member asks for."""
    return ShareSubscription(
        value.client_id, value.client_host, value.rack_id, tuple(value.subscribed_topic_names)
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member is gone."""
    kinds = (
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupMemberMetadataKey,
    )
    return [CoordinatorRecord(kind(group_id=group_id, member_id=member_id), None) for kind in kinds]


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """What a member should have."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(target.items())
        ]
    )
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of the targets, after the targets of all members."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def assignment_record(
    group_id: str, member_id: str, epoch: int, previous_epoch: int, assigned: Assignment
) -> CoordinatorRecord:
    """What a member has."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        assigned_partitions=[
            TopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(assigned.items())
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def assignment_of(topics: Iterable[TopicPartition] | Iterable[TopicPartitions]) -> Assignment:
    """Read partitions by topic."""
    return {each.topic_id: frozenset(each.partitions) for each in topics}


def state_record(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    """Which topics the group has state of."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(state.initializing),
        initialized_topics=_topics(state.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic, topic_name=name)
            for topic, name in sorted(state.deleting.items())
        ],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def state_of(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """Read which topics the group has state of."""
    return StatePartitions(
        _read_topics(value.initializing_topics),
        _read_topics(value.initialized_topics),
        {each.topic_id: each.topic_name for each in value.deleting_topics},
    )


def _topics(topics: Mapping[Uuid, TopicShare]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic, topic_name=share.name, partitions=sorted(share.partitions)
        )
        for topic, share in sorted(topics.items())
    ]


def _read_topics(topics: Iterable[TopicPartitionsInfo]) -> dict[Uuid, TopicShare]:
    return {
        each.topic_id: TopicShare(each.topic_name, frozenset(each.partitions)) for each in topics
    }
