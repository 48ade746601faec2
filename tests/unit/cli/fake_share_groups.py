"""The cluster in memory with share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition
from millstream.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    share_group_describe,
)
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_groups import FakeGroups

if TYPE_CHECKING:
    from millstream.protocol.message import Message


def share_member(name: str, *partitions: int) -> share_group_describe.Member:
    """A member of a share group, with partitions of the topic."""
    places = share_group_describe.TopicPartitions(topic_name=TOPIC, partitions=list(partitions))
    return share_group_describe.Member(
        member_id=name,
        member_epoch=3,
        client_id="worker",
        client_host="/10.0.0.3",
        subscribed_topic_names=[TOPIC],
        assignment=share_group_describe.Assignment(topic_partitions=[places]),
    )


class FakeShareGroups(FakeGroups):
    """One broker that coordinates share groups, too. Their offset -1 is one not set yet."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.members: list[share_group_describe.Member] = []
        """Of all share groups."""
        self.partition_error_code = 0

    def _answer(self, request: Message) -> Message:
        match request:
            case ShareGroupDescribeRequest(group_ids=names):
                return ShareGroupDescribeResponse(groups=[self._share(each) for each in names])
            case DescribeShareGroupOffsetsRequest(groups=groups):
                answers = [self._share_offsets(each.group_id) for each in groups]
                return DescribeShareGroupOffsetsResponse(groups=answers)
            case AlterShareGroupOffsetsRequest():
                return self._alter(request)
            case DeleteShareGroupOffsetsRequest():
                return self._forget(request)
        return super()._answer(request)

    def _share(self, name: str) -> share_group_describe.DescribedGroup:
        group = self.groups.get(name)
        if group is None or group.type != "share":
            return share_group_describe.DescribedGroup(
                group_id=name, error_code=GroupIdNotFound.code
            )
        return share_group_describe.DescribedGroup(
            group_id=name,
            group_state=group.state,
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="simple",
            members=self.members,
        )

    def _share_offsets(self, name: str) -> DescribeShareGroupOffsetsResponseGroup:
        if name not in self.groups:
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=name, error_code=GroupIdNotFound.code
            )
        partitions = [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=offset,
                lag=-1 if offset < 0 else self.end(index) - offset,
                error_code=self.partition_error_code,
            )
            for index, offset in self.groups[name].offsets.items()
        ]
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name=TOPIC, partitions=partitions)
        return DescribeShareGroupOffsetsResponseGroup(group_id=name, topics=[topic])

    def _alter(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        group = self.groups[request.group_id]
        if group.is_reading:
            return AlterShareGroupOffsetsResponse(error_code=NonEmptyGroup.code)
        [topic] = request.topics
        code = self.partition_error_code
        if not code:
            group.offsets |= {each.partition_index: each.start_offset for each in topic.partitions}
        results = [
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code
            )
            for each in topic.partitions
        ]
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=TOPIC, partitions=results)
        return AlterShareGroupOffsetsResponse(responses=[answer])

    def _forget(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        group = self.groups[request.group_id]
        if group.is_reading:
            return DeleteShareGroupOffsetsResponse(error_code=NonEmptyGroup.code)
        assert [each.topic_name for each in request.topics] == [TOPIC]
        code = 0 if group.offsets else UnknownTopicOrPartition.code
        group.offsets.clear()
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=TOPIC, error_code=code)
        return DeleteShareGroupOffsetsResponse(responses=[answer])
