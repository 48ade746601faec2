"""The records of consumer groups, to write and as they are read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.decision import CoordinatorRecord
from millstream.coordinator.group.consumer.member import (
    ClassicProtocols,
    MemberState,
    Progress,
    Subscription,
)
from millstream.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.member import OwnedPartitions


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The epoch of a group."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return CoordinatorRecord(
        key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """A group without members is gone."""
    return [
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def member_record(group_id: str, member_id: str, asked: Subscription) -> CoordinatorRecord:
    """What a member asks for."""
    classic = None
    if asked.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=asked.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in asked.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=asked.instance_id,
        rack_id=asked.rack,
        client_id=asked.client_id,
        client_host=asked.client_host,
        subscribed_topic_names=list(asked.topics),
        subscribed_topic_regex=asked.regex,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        server_assignor=asked.assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def subscription_of(value: ConsumerGroupMemberMetadataValue) -> Subscription:
    """Read what a member asks for."""
    classic = value.classic_member_metadata
    return Subscription(
        value.client_id,
        value.client_host,
        value.instance_id,
        value.rack_id,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex,
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def progress_record(group_id: str, member_id: str, progress: Progress) -> CoordinatorRecord:
    """How far a member has come."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=int(progress.state),
        assigned_partitions=_owned(progress.assigned),
        partitions_pending_revocation=_owned(progress.pending_revocation),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def progress_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Progress:
    """Read how far a member has come."""
    return Progress(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        _read_owned(value.assigned_partitions, value.member_epoch),
        _read_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned(owned: OwnedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[each] for each in sorted(partitions)],
        )
        for topic, partitions in sorted(owned.items())
    ]


def _read_owned(topics: Iterable[TopicPartitions], epoch: int) -> OwnedPartitions:
    """Older software did not write when a partition was assigned."""
    return {
        topic.topic_id: dict(
            zip(
                topic.partitions,
                topic.assignment_epochs or [epoch] * len(topic.partitions),
                strict=True,
            )
        )
        for topic in topics
    }


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """What a member should have."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(target.items())
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, value)


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """Read what a member should have."""
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of the target assignment, after the targets of all members."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=wall_ms
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member is gone."""
    return [
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        ),
    ]


def regex_record(
    group_id: str, regex: str, topics: Iterable[str] | None, wall_ms: int
) -> CoordinatorRecord:
    """The topics that an expression matches; None if nobody uses it any more."""
    value = None
    if topics is not None:
        value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), timestamp=wall_ms)
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, value)
