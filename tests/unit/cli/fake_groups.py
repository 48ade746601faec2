"""The cluster in memory with groups and their offsets, as one coordinator has them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    consumer_group_describe,
    describe_groups,
    share_group_describe,
)
from millstream.protocol.messages.consumer_group_describe import (
    Assignment,
    Member,
    TopicPartitions,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from millstream.protocol.messages.delete_groups import DeletableGroupResult
from millstream.protocol.messages.find_coordinator import Coordinator
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from millstream.protocol.records_framing import encode_assignment, encode_subscription
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster

if TYPE_CHECKING:
    from millstream.protocol.message import Message


@dataclass
class FakeGroup:
    """A group of one of the two protocols, and what it has committed in the topic."""

    type: str = "classic"
    state: str = "Empty"
    offsets: dict[int, int] = field(default_factory=dict)
    classic: list[describe_groups.DescribedGroupMember] = field(default_factory=list)
    modern: list[consumer_group_describe.Member] = field(default_factory=list)
    protocol_type: str = "consumer"
    is_reading: bool = False


class FakeGroups(FakeCluster):
    """One broker that coordinates all groups."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.groups: dict[str, FakeGroup] = {}
        self.codes: dict[type[Message], list[int]] = defaultdict(list)
        """Errors that the next answers have in them, by request; 0 for none."""

    def _answer(self, request: Message) -> Message:
        match request:
            case FindCoordinatorRequest(coordinator_keys=keys):
                code = self._code(request)
                found = [
                    Coordinator(
                        key=key, node_id=1, host=self.address.host, port=9092, error_code=code
                    )
                    for key in keys
                ]
                return FindCoordinatorResponse(coordinators=found)
            case ListGroupsRequest():
                return self._list(request)
            case ConsumerGroupDescribeRequest(group_ids=names):
                return ConsumerGroupDescribeResponse(groups=[self._modern(each) for each in names])
            case ShareGroupDescribeRequest(group_ids=names):
                return ShareGroupDescribeResponse(
                    groups=[
                        share_group_describe.DescribedGroup(
                            group_id=each, error_code=GroupIdNotFound.code
                        )
                        for each in names
                    ]
                )
            case DescribeGroupsRequest(groups=names):
                return DescribeGroupsResponse(groups=[self._classic(each) for each in names])
            case OffsetFetchRequest(groups=groups):
                code = self._code(request)
                answers = [self._fetch_offsets(each.group_id, code) for each in groups]
                return OffsetFetchResponse(groups=answers)
            case OffsetCommitRequest():
                return self._commit(request)
            case DeleteGroupsRequest(groups_names=names):
                code = self._code(request)
                results = [self._delete(each, code) for each in names]
                return DeleteGroupsResponse(results=results)
            case OffsetDeleteRequest():
                return self._delete_offsets(request)
        return super()._answer(request)

    def _code(self, request: Message) -> int:
        codes = self.codes[type(request)]
        return codes.pop(0) if codes else 0

    def _list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(
            error_code=self._code(request),
            groups=[
                ListedGroup(
                    group_id=name,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
                for name, group in self.groups.items()
                if (not request.states_filter or group.state in request.states_filter)
                and (not request.types_filter or group.type.lower() in request.types_filter)
            ],
        )

    def _modern(self, name: str) -> consumer_group_describe.DescribedGroup:
        group = self.groups.get(name)
        if group is None or group.type != "consumer":
            return consumer_group_describe.DescribedGroup(
                group_id=name, error_code=GroupIdNotFound.code
            )
        return consumer_group_describe.DescribedGroup(
            group_id=name,
            group_state=group.state,
            group_epoch=3,
            assignment_epoch=2,
            assignor_name="uniform",
            members=group.modern,
        )

    def _classic(self, name: str) -> describe_groups.DescribedGroup:
        group = self.groups.get(name)
        if group is None or group.type != "classic":
            return describe_groups.DescribedGroup(
                group_id=name, group_state="Dead", error_code=GroupIdNotFound.code
            )
        return describe_groups.DescribedGroup(
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data="range",
            members=group.classic,
        )

    def _fetch_offsets(self, name: str, code: int) -> OffsetFetchResponseGroup:
        if code:
            return OffsetFetchResponseGroup(group_id=name, error_code=code)
        if name not in self.groups:
            return OffsetFetchResponseGroup(group_id=name, error_code=GroupIdNotFound.code)
        partitions = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset)
            for index, offset in self.groups[name].offsets.items()
        ]
        topics = [OffsetFetchResponseTopics(name=TOPIC, partitions=partitions)]
        return OffsetFetchResponseGroup(group_id=name, topics=topics)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        group = self.groups.setdefault(request.group_id, FakeGroup())
        code = UnknownMemberId.code if group.is_reading else self._code(request)
        [topic] = request.topics
        assert topic.name == TOPIC
        results = []
        for each in topic.partitions:
            if not code:
                group.offsets[each.partition_index] = each.committed_offset
            results.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=results)]
        )

    def _delete(self, name: str, code: int) -> DeletableGroupResult:
        if self.groups[name].is_reading:
            code = NonEmptyGroup.code
        if not code:
            del self.groups[name]
        return DeletableGroupResult(group_id=name, error_code=code)

    def _delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        if code := self._code(request):
            return OffsetDeleteResponse(error_code=code)
        group = self.groups[request.group_id]
        [topic] = request.topics
        results = []
        for each in topic.partitions:
            code = GroupSubscribedToTopic.code if group.is_reading else 0
            if not code and group.offsets.pop(each.partition_index, None) is None:
                code = UnknownTopicOrPartition.code
            results.append(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        answer = OffsetDeleteResponseTopic(name=topic.name, partitions=results)
        return OffsetDeleteResponse(topics=[answer])


def classic_member(name: str, *partitions: int) -> describe_groups.DescribedGroupMember:
    """A member of a classic group, with partitions of the topic."""
    owned = ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=list(partitions))
    return describe_groups.DescribedGroupMember(
        member_id=name,
        client_id="shop",
        client_host="/10.0.0.1",
        member_metadata=encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]), 3),
        member_assignment=encode_assignment(
            ConsumerProtocolAssignment(assigned_partitions=[owned]), 3
        ),
    )


def assignment(*partitions: int) -> Assignment:
    """Partitions of the topic."""
    places = TopicPartitions(topic_name=TOPIC, partitions=list(partitions))
    return Assignment(topic_partitions=[places] if partitions else [])


def modern_member(name: str, owned: Assignment, target: Assignment) -> Member:
    """A member of a group of the consumer protocol."""
    return Member(
        member_id=name,
        instance_id="till-1",
        rack_id="east",
        member_epoch=3,
        client_id="shop",
        client_host="/10.0.0.2",
        subscribed_topic_names=[TOPIC],
        assignment=owned,
        target_assignment=target,
    )
