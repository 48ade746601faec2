"""A consumer group as ConsumerGroupDescribe tells it. Functions only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from millstream.protocol.messages.consumer_group_describe import (
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.group import ConsumerGroup
    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.coordinator.group.consumer.ports import SubscribableTopics

_CONSUMER, _CLASSIC = 1, 0
"""What ConsumerGroupDescribe calls the protocols of members."""


def described(
    group: ConsumerGroup, topics: SubscribableTopics, default_assignor: str
) -> DescribedGroup:
    """State, epochs, members and their assignments."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_assignor_of(group, default_assignor),
        members=[_described(group, each, topics) for each in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: SubscribableTopics) -> Member:
    asked = member.subscription
    return Member(
        member_id=member.member_id,
        instance_id=asked.instance_id,
        rack_id=asked.rack,
        member_epoch=member.epoch,
        client_id=asked.client_id,
        client_host=asked.client_host,
        subscribed_topic_names=list(asked.topics),
        subscribed_topic_regex=asked.regex or "",
        assignment=_named(member.progress.assignment, topics),
        target_assignment=_named(group.targets.get(member.member_id, {}), topics),
        member_type=_CONSUMER if asked.classic is None else _CLASSIC,
    )


def _named(assignment: Assignment, topics: SubscribableTopics) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions))
            for topic, partitions in sorted(assignment.items())
            if (name := topics.topic_name(topic)) is not None
        ]
    )


def _assignor_of(group: ConsumerGroup, default: str) -> str:
    wanted = [each.subscription.assignor for each in group.members.values()]
    named = [each for each in wanted if each is not None]
    return max(sorted(set(named)), key=named.count, default=default)
