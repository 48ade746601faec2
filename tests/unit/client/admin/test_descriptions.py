"""What brokers say of groups, shares, offsets and directories, as values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from millstream.client.admin.group_offsets import ShareOffset
from millstream.client.admin.log_dirs import TopicPartitionReplica
from millstream.client.admin.topics import setting_text
from millstream.errors import GroupIdNotFound, InvalidArgument, InvalidRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    AlterShareGroupOffsetsResponse,
    ConsumerGroupDescribeResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeGroupsResponse,
    DescribeLogDirsResponse,
    DescribeQuorumResponse,
    DescribeShareGroupOffsetsResponse,
    ListOffsetsResponse,
    ShareGroupDescribeResponse,
    list_offsets,
)
from millstream.protocol.messages import consumer_group_describe as consumer
from millstream.protocol.messages import describe_groups as classic
from millstream.protocol.messages import describe_log_dirs as dirs
from millstream.protocol.messages import describe_quorum as quorum
from millstream.protocol.messages import describe_share_group_offsets as shares
from millstream.protocol.messages import share_group_describe as share
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.types import TopicPartition
from tests.unit.client.admin.office import Office

A0 = TopicPartition("a", 0)
NOT_FOUND = 69


def consumer_group() -> consumer.DescribedGroup:
    """A member has a partition of this namespace, and one of another."""
    assigned = consumer.Assignment(
        topic_partitions=[
            consumer.TopicPartitions(topic_name="e.a", partitions=[0]),
            consumer.TopicPartitions(topic_name="other", partitions=[1]),
        ]
    )
    member = consumer.Member(
        member_id="m",
        member_epoch=3,
        subscribed_topic_names=["e.a"],
        assignment=assigned,
        member_type=0,
    )
    return consumer.DescribedGroup(group_id="e.new1", group_state="Stable", members=[member])


def share_group() -> share.DescribedGroup:
    """A member has a partition."""
    assigned = share.Assignment(
        topic_partitions=[share.TopicPartitions(topic_name="e.a", partitions=[0])]
    )
    member = share.Member(member_id="s", assignment=assigned)
    return share.DescribedGroup(group_id="e.shared1", group_state="Stable", members=[member])


def test_a_group_is_found_whichever_protocol_it_speaks() -> None:
    office = Office(namespace="e")
    no_consumers = [
        consumer.DescribedGroup(group_id=f"e.{each}", error_code=NOT_FOUND)
        for each in ("old1", "shared1", "none1")
    ]
    no_classics = [
        classic.DescribedGroup(group_id=f"e.{each}", error_code=NOT_FOUND)
        for each in ("shared1", "none1")
    ]
    old = classic.DescribedGroup(group_id="e.old1", group_state="Empty")
    none = share.DescribedGroup(group_id="e.none1", error_code=NOT_FOUND)
    office.answers(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ConsumerGroupDescribeResponse(groups=[consumer_group(), *no_consumers]),
    )
    office.answers(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[old, *no_classics]))
    office.answers(
        ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeResponse(groups=[share_group(), none])
    )

    found = office.run(office.operations.describe_groups(["new1", "old1", "shared1", "none1"]))

    types = [found[name].type for name in ("new1", "old1", "shared1")]
    assert types == ["consumer", "classic", "share"]
    (member,) = found["new1"].members
    assert member.assignment == {A0}
    assert member.is_classic is True
    assert member.subscribed_topics == {"a"}
    assert found["shared1"].members[0].assignment == {A0}
    assert isinstance(found.errors["none1"], GroupIdNotFound)


def test_share_offsets_are_read_set_and_deleted() -> None:
    office = Office()

    def group(name: str, partition_error: int = 0, group_error: int = 0) -> object:
        partition = shares.DescribeShareGroupOffsetsResponsePartition(
            partition_index=0, start_offset=4, leader_epoch=1, lag=9, error_code=partition_error
        )
        unread = shares.DescribeShareGroupOffsetsResponsePartition(
            partition_index=1, start_offset=-1
        )
        topic = shares.DescribeShareGroupOffsetsResponseTopic(
            topic_name="a", partitions=[partition, unread]
        )
        return shares.DescribeShareGroupOffsetsResponseGroup(
            group_id=name, topics=[topic], error_code=group_error
        )

    answered = [group("s1"), group("t1", partition_error=42), group("u1", group_error=NOT_FOUND)]
    office.answers(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        DescribeShareGroupOffsetsResponse(groups=answered),  # type: ignore[arg-type]  # Made above.
    )
    office.answers(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        AlterShareGroupOffsetsResponse(
            responses=[
                AlterShareGroupOffsetsResponseTopic(
                    topic_name="a",
                    partitions=[AlterShareGroupOffsetsResponsePartition(partition_index=0)],
                )
            ]
        ),
    )
    office.answers(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        DeleteShareGroupOffsetsResponse(
            responses=[DeleteShareGroupOffsetsResponseTopic(topic_name="a", error_code=42)]
        ),
    )

    found = office.run(office.operations.list_share_group_offsets(["s1", "t1", "u1"]))
    assert found["s1"][A0] == ShareOffset(4, 1, 9)
    assert isinstance(found.errors["t1"], InvalidRequest)
    assert isinstance(found.errors["u1"], GroupIdNotFound)
    office.run(office.operations.alter_share_group_offsets("s1", {A0: 5})).raise_first()
    gone = office.run(office.operations.delete_share_group_offsets("s1", ["a"]))
    assert isinstance(gone.errors["a"], InvalidRequest)


def test_a_replica_on_the_move_has_two_places() -> None:
    office = Office()

    def log_dir(path: str, *, is_future: bool) -> dirs.DescribeLogDirsResult:
        partition = dirs.DescribeLogDirsPartition(
            partition_index=0, partition_size=10, offset_lag=2, is_future_key=is_future
        )
        topic = dirs.DescribeLogDirsTopic(name="a", partitions=[partition])
        return dirs.DescribeLogDirsResult(log_dir=path, topics=[topic])

    empty = dirs.DescribeLogDirsResult(log_dir="/3", error_code=56)
    office.answers(
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsResponse(
            results=[log_dir("/1", is_future=False), log_dir("/2", is_future=True), empty]
        ),
    )
    replica = TopicPartitionReplica("a", 0, 1)

    place = office.run(office.operations.describe_replica_log_dirs([replica]))[replica]
    described = office.run(office.operations.describe_log_dirs([1], partitions=[A0]))[1]

    assert (place.current, place.future, place.future_lag) == ("/1", "/2", 2)
    assert described["/3"].error is not None
    assert described["/1"].replicas[A0].size_bytes == 10


def test_a_quorum_that_refuses_to_be_described_raises() -> None:
    office = Office()
    partition = quorum.DescribeQuorumResponsePartitionData(error_code=42)
    topic = quorum.DescribeQuorumResponseTopicData(partitions=[partition])
    office.answers(ApiKey.DESCRIBE_QUORUM, DescribeQuorumResponse(topics=[topic]))

    with pytest.raises(InvalidRequest):
        office.run(office.operations.describe_quorum())


def test_times_are_asked_for_in_milliseconds() -> None:
    office = Office()
    office.cluster.add_topic("a")
    found = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=3, timestamp=1_500)
    topic = list_offsets.ListOffsetsTopicResponse(name="a", partitions=[found])
    office.answers(ApiKey.LIST_OFFSETS, ListOffsetsResponse(topics=[topic]))
    moment = datetime.fromtimestamp(1.5, UTC)

    listed = office.run(office.operations.list_offsets({A0: moment}))

    assert (listed[A0].offset, listed[A0].timestamp, listed[A0].leader_epoch) == (3, 1_500, None)
    (asked,) = office.requests(ApiKey.LIST_OFFSETS)
    assert asked.topics[0].partitions[0].timestamp == 1_500
    for wrong in (moment.replace(tzinfo=None), -1):
        with pytest.raises(InvalidArgument):
            office.run(office.operations.list_offsets({A0: wrong}))


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (["a", "b"], "a,b"), (5, "5"), (None, None), ("x", "x")],
)
def test_settings_are_text(value: object, text: str | None) -> None:
    assert setting_text(value) == text
