"""What a member of a classic group says to its coordinator, and members to each other inside it.

Subscriptions go up and assignments come down in Java's consumer protocol, the newest version of
each: readers of older ones stop where they know no more. Nothing here keeps state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.consumer.membership.assignors import GroupMember
from millstream.client.consumer.membership.assignors.user_data import by_topic
from millstream.errors import ClientError, DecodeError, UnsupportedVersion
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from millstream.protocol.messages.heartbeat import HeartbeatRequest
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.membership.assignors import (
        Assignor,
        GroupTopics,
        PreviousAssignment,
    )
    from millstream.protocol.message import Message
    from millstream.protocol.messages.join_group import JoinGroupResponseMember

PROTOCOL_TYPE: Final = "consumer"
_NEWEST: Final = 3
_STATIC_SINCE: Final = 5
_MEMBERS_SINCE: Final = 3


def join_request(
    config: ConsumerConfig,
    member_id: str,
    protocols: list[JoinGroupRequestProtocol],
    reason: str | None,
) -> VersionedRequest:
    """Enter the group, or its next generation."""
    request = JoinGroupRequest(
        group_id=config.wire_group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason,
    )

    def build(version: int) -> Message:
        if request.group_instance_id is not None and version < _STATIC_SINCE:
            raise UnsupportedVersion(
                "group_instance_id (static membership) needs a broker of Kafka 2.3 or newer: "
                "leave it out, or use a newer broker"
            )
        return request

    return VersionedRequest(ApiKey.JOIN_GROUP, build)


def sync_request(
    config: ConsumerConfig,
    member_id: str,
    generation: int,
    protocol: str | None,
    assignments: list[SyncGroupRequestAssignment],
) -> Message:
    """Get what the leader has assigned; the leader says it."""
    return SyncGroupRequest(
        group_id=config.wire_group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=assignments,
    )


def heartbeat_request(config: ConsumerConfig, member_id: str, generation: int) -> Message:
    """Stay in the group."""
    return HeartbeatRequest(
        group_id=config.wire_group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=config.group_instance_id,
    )


def leave_request(config: ConsumerConfig, member_id: str, reason: str) -> VersionedRequest:
    """Leave the group."""

    def build(version: int) -> Message:
        if version < _MEMBERS_SINCE:
            return LeaveGroupRequest(group_id=config.wire_group_id, member_id=member_id)
        identity = MemberIdentity(
            member_id=member_id, group_instance_id=config.group_instance_id, reason=reason
        )
        return LeaveGroupRequest(group_id=config.wire_group_id, members=[identity])

    return VersionedRequest(ApiKey.LEAVE_GROUP, build)


def offered_protocols(
    assignors: Iterable[Assignor],
    topics: frozenset[str],
    owned: frozenset[TopicPartition],
    previous: PreviousAssignment,
    rack: str | None,
) -> list[JoinGroupRequestProtocol]:
    """The assignors that a member has, in order of preference, with what it tells each."""
    ours = [
        ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(owned).items()
    ]
    return [
        JoinGroupRequestProtocol(
            name=each.name,
            metadata=encode_subscription(
                ConsumerProtocolSubscription(
                    topics=sorted(topics),
                    user_data=each.user_data(previous),
                    owned_partitions=ours,
                    generation_id=previous.generation,
                    rack_id=rack or None,
                ),
                _NEWEST,
            ),
        )
        for each in assignors
    ]


def read_members(members: Iterable[JoinGroupResponseMember]) -> dict[str, GroupMember]:
    """The group as its leader is told; a member that says nonsense gets nothing."""
    found: dict[str, GroupMember] = {}
    for each in members:
        try:
            said = decode_subscription(each.metadata)
        except DecodeError:
            said = ConsumerProtocolSubscription()
        found[each.member_id] = GroupMember(
            each.member_id,
            frozenset(said.topics),
            frozenset(
                TopicPartition(topic.topic, index)
                for topic in said.owned_partitions
                for index in topic.partitions
            ),
            said.generation_id,
            each.group_instance_id,
            said.rack_id,
            said.user_data,
        )
    return found


def computed_assignments(
    assignor: Assignor, members: dict[str, GroupMember], topics: GroupTopics
) -> list[SyncGroupRequestAssignment]:
    """Have the assignor decide, and write down what each member gets."""
    try:
        assigned = assignor.assign(members, topics)
        by_member = {name: by_topic(assigned.get(name, ())) for name in members}
    except Exception as error:
        raise ClientError(f"assignor {assignor.name!r} failed: {error!r}") from error
    return [
        SyncGroupRequestAssignment(
            member_id=name,
            assignment=encode_assignment(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
                        for topic, indexes in partitions.items()
                    ]
                ),
                _NEWEST,
            ),
        )
        for name, partitions in by_member.items()
    ]


def read_assignment(blob: bytes) -> frozenset[TopicPartition]:
    """The partitions that the leader gave us; no bytes mean none."""
    if not blob:
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, index)
        for topic in decode_assignment(blob).assigned_partitions
        for index in topic.partitions
    )
