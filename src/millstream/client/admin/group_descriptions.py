"""What brokers say of a group, in three protocols, as one kind of value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import DecodeError, GroupIdNotFound, MillstreamError, error_for_code
from millstream.protocol.records_framing import decode_assignment, decode_subscription
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.namespace import Namespace
    from millstream.protocol.messages import consumer_group_describe as consumer
    from millstream.protocol.messages import describe_groups as classic
    from millstream.protocol.messages import share_group_describe as share

_CONSUMER: Final = "consumer"
_DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_pattern: str | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    """What it is to have when it has given up and taken over (not in classic groups)."""
    instance_id: str | None = None
    rack_id: str | None = None
    epoch: int | None = None
    is_classic: bool | None = None
    """Whether it speaks the classic protocol in a group of the newer one, where that is told."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group."""

    group_id: str
    type: str
    """classic, consumer or share."""
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    protocol_type: str = _CONSUMER
    epoch: int | None = None
    assignment_epoch: int | None = None
    coordinator: int | None = None
    """The broker that coordinates it."""


class GroupDescriptions:
    """Reads answers; names are the user's."""

    def __init__(self, names: Namespace) -> None:
        self._names = names

    def of_consumer_groups(
        self, answer: consumer.ConsumerGroupDescribeResponse
    ) -> dict[str, GroupDescription | MillstreamError]:
        """By group id."""
        return {
            name: _error(each) or self._consumer_group(name, each)
            for each in answer.groups
            if (name := self._names.from_wire(each.group_id)) is not None
        }

    def of_share_groups(
        self, answer: share.ShareGroupDescribeResponse
    ) -> dict[str, GroupDescription | MillstreamError]:
        """By group id."""
        return {
            name: _error(each) or self._share_group(name, each)
            for each in answer.groups
            if (name := self._names.from_wire(each.group_id)) is not None
        }

    def of_classic_groups(
        self, answer: classic.DescribeGroupsResponse
    ) -> dict[str, GroupDescription | MillstreamError]:
        """By group id. Brokers before Kafka 4 say of a group that is not there that it is dead."""
        return {
            name: _error(each)
            or (
                GroupIdNotFound(f"there is no group {name}")
                if each.group_state == _DEAD
                else self._classic_group(name, each)
            )
            for each in answer.groups
            if (name := self._names.from_wire(each.group_id)) is not None
        }

    def _consumer_group(self, name: str, told: consumer.DescribedGroup) -> GroupDescription:
        members = tuple(
            MemberDescription(
                each.member_id,
                each.client_id,
                each.client_host,
                self._assigned(each.assignment),
                self._topics(each.subscribed_topic_names),
                each.subscribed_topic_regex or None,
                self._assigned(each.target_assignment),
                each.instance_id,
                each.rack_id,
                each.member_epoch,
                None if each.member_type < 0 else each.member_type == 0,
            )
            for each in told.members
        )
        return GroupDescription(
            name,
            "consumer",
            told.group_state,
            told.assignor_name,
            members,
            epoch=told.group_epoch,
            assignment_epoch=told.assignment_epoch,
        )

    def _share_group(self, name: str, told: share.DescribedGroup) -> GroupDescription:
        members = tuple(
            MemberDescription(
                each.member_id,
                each.client_id,
                each.client_host,
                self._assigned(each.assignment),
                self._topics(each.subscribed_topic_names),
                rack_id=each.rack_id,
                epoch=each.member_epoch,
            )
            for each in told.members
        )
        return GroupDescription(
            name,
            "share",
            told.group_state,
            told.assignor_name,
            members,
            protocol_type="share",
            epoch=told.group_epoch,
            assignment_epoch=told.assignment_epoch,
        )

    def _classic_group(self, name: str, told: classic.DescribedGroup) -> GroupDescription:
        return GroupDescription(
            name,
            "classic",
            told.group_state,
            told.protocol_data,
            tuple(self._classic_member(each, told.protocol_type) for each in told.members),
            told.protocol_type,
        )

    def _classic_member(
        self, told: classic.DescribedGroupMember, protocol_type: str
    ) -> MemberDescription:
        assignment: frozenset[TopicPartition] = frozenset()
        topics: frozenset[str] = frozenset()
        # Other kinds of members (Kafka Connect) have bytes of their own here.
        if protocol_type == _CONSUMER and told.member_assignment:
            try:
                decoded = decode_assignment(told.member_assignment)
                assignment = self._partitions(
                    (each.topic, each.partitions) for each in decoded.assigned_partitions
                )
                topics = self._topics(decode_subscription(told.member_metadata).topics)
            except DecodeError:  # A client's own invention: its members are members all the same.
                pass
        return MemberDescription(
            told.member_id,
            told.client_id,
            told.client_host,
            assignment,
            topics,
            instance_id=told.group_instance_id,
        )

    def _assigned(self, told: consumer.Assignment | share.Assignment) -> frozenset[TopicPartition]:
        return self._partitions(
            (each.topic_name, each.partitions) for each in told.topic_partitions
        )

    def _partitions(self, listed: Iterable[tuple[str, list[int]]]) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(name, index)
            for topic, indexes in listed
            if (name := self._names.from_wire(topic)) is not None
            for index in indexes
        )

    def _topics(self, wire_names: Iterable[str]) -> frozenset[str]:
        names = (self._names.from_wire(each) for each in wire_names)
        return frozenset(each for each in names if each is not None)


def _error(
    told: consumer.DescribedGroup | classic.DescribedGroup | share.DescribedGroup,
) -> MillstreamError | None:
    return error_for_code(told.error_code, told.error_message) if told.error_code else None
