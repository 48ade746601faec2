"""A value that a version cannot carry is named: message, version, field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import EncodeError
from millstream.protocol.messages import ConsumerProtocolSubscription, LeaderAndIsrRequest
from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from millstream.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from millstream.protocol.messages.fetch import FetchRequest, FetchTopic
from millstream.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from millstream.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from millstream.protocol.messages.topic_records import PartitionChangeRecord, TopicRecord
from millstream.protocol.messages.vote import VoteRequest

if TYPE_CHECKING:
    from millstream.protocol.message import Message

ANY: Any = object()


def produce(records: Any) -> ProduceRequest:
    data = PartitionProduceData(records=records)
    return ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])])


def partition(**fields: Any) -> MetadataResponse:
    partitions = [MetadataResponsePartition(), MetadataResponsePartition(**fields)]
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])


CASES: list[tuple[Message, int, str, str]] = [
    (FetchRequest(max_wait_ms=1 << 31), 4, "max_wait_ms", "2147483648 is no int32"),
    (FetchRequest(max_wait_ms=ANY), 4, "max_wait_ms", "a value of type object is no int32"),
    (FetchRequest(isolation_level=-129), 16, "isolation_level", "-129 is no int8"),
    (partition(leader_epoch=1 << 40), 9, "topics[0].partitions[1].leader_epoch", "is no int32"),
    (partition(isr_nodes=[1, "x"]), 9, "topics[0].partitions[1].isr_nodes[1]", "is no int32"),
    (partition(isr_nodes=None), 1, "topics[0].partitions[1].isr_nodes", "null is not allowed"),
    (partition(isr_nodes=5), 1, "topics[0].partitions[1].isr_nodes", "a list is needed, not 5"),
    (
        partition(isr_nodes=range(1 << 31)),
        1,
        "topics[0].partitions[1].isr_nodes",
        "length 2147483648 does not fit",
    ),
    (MetadataRequest(topics=None), 0, "topics", "null is not allowed"),
    (MetadataRequest(topics=[ANY]), 1, "topics[0]", "a MetadataRequestTopic is needed"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]),
        4,
        "topics[0].name",
        "null is not allowed",
    ),
    (
        MetadataRequest(allow_auto_topic_creation=False),
        3,
        "allow_auto_topic_creation",
        "is set but",
    ),
    (
        OffsetCommitRequest(group_instance_id="i"),
        6,
        "group_instance_id",
        "a value of type str is set but",
    ),
    (FetchRequest(topics=[FetchTopic(topic_id=ANY)]), 13, "topics[0].topic_id", "a Uuid is needed"),
    (
        FetchRequest(topics=[FetchTopic(topic_id=b"short")]),  # type: ignore[arg-type]
        13,
        "topics[0].topic_id",
        "a Uuid is needed",
    ),
    (VoteRequest(cluster_id="\ud800"), 0, "cluster_id", "not UTF-8"),
    (VoteRequest(cluster_id="x" * 40_000), 0, "cluster_id", "limit 32767"),
    (OffsetCommitRequest(group_id="x" * 40_000), 2, "group_id", "limit 32767"),
    (OffsetCommitRequest(group_id=ANY), 2, "group_id", "a string is needed"),
    (SaslAuthenticateRequest(auth_bytes="text"), 0, "auth_bytes", "bytes are needed"),  # type: ignore[arg-type]
    (
        ShareFetchResponse(
            responses=[ShareFetchableTopicResponse(partitions=[PartitionData(records=None)])]
        ),
        1,
        "responses[0].partitions[0].records",
        "null is not allowed",
    ),
    (
        DescribeTopicPartitionsRequest(
            cursor=DescribeTopicPartitionsRequestCursor(partition_index=1 << 31)
        ),
        0,
        "cursor.partition_index",
        "is no int32",
    ),
    (
        DescribeTopicPartitionsRequest(cursor=ANY),
        0,
        "cursor",
        "a DescribeTopicPartitionsRequestCursor is needed",
    ),
    (
        FetchSnapshotRequest(
            topics=[
                FetchSnapshotRequestTopicSnapshot(
                    partitions=[FetchSnapshotRequestPartitionSnapshot(snapshot_id=ANY)]
                )
            ]
        ),
        1,
        "topics[0].partitions[0].snapshot_id",
        "is needed",
    ),
    (TopicRecord(unknown_tags=((-1, b""),)), 0, "unknown_tags", "not an unsigned number"),
    (TopicRecord(unknown_tags=((1, b""), (1, b""))), 0, "unknown_tags", "tag 1 is taken"),
    (PartitionChangeRecord(unknown_tags=((1, b""),)), 0, "unknown_tags", "tag 1 is taken"),
    (TopicRecord(unknown_tags=((1, "text"),)), 0, "unknown_tags", "tag 1 needs bytes"),  # type: ignore[arg-type]
    (PartitionChangeRecord(leader=1 << 40), 0, "leader", "is no int32"),
    (PartitionChangeRecord(directories=[]), 0, "directories", "is set but"),
    (
        ConsumerProtocolSubscription(unknown_tags=((1, b""),)),
        0,
        "unknown_tags",
        "no tagged fields",
    ),
    (FetchRequest(), 3, "", "there is no version 3, known are 4-18"),
    (LeaderAndIsrRequest(), 0, "", "there is no version 0, known are none"),
]


@pytest.mark.parametrize(("message", "version", "field", "problem"), CASES)
def test_the_error_names_the_field(
    message: Message, version: int, field: str, problem: str
) -> None:
    for encode in (message.encode, message.encode_parts):
        with pytest.raises(EncodeError) as caught:
            encode(version)

        assert caught.value.message == type(message).__name__
        assert caught.value.version == version
        assert caught.value.field == field
        assert problem in caught.value.problem


def test_records_must_be_bytes_unless_a_sender_takes_them_as_they_are() -> None:
    request = produce("text")

    with pytest.raises(EncodeError, match="records: bytes are needed, not a value of type str"):
        request.encode(3)
    parts: list[Any] = list(request.encode_parts(3))
    assert "text" in parts


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    request = FetchRequest(rack_id="r", session_id=3)

    assert FetchRequest.decode(request.encode(4), 4) == FetchRequest()


def test_a_nullable_struct_is_null_or_there() -> None:
    assert ConsumerGroupHeartbeatResponse(assignment=None).encode(0)[-2:] == b"\xff\0"
    cursor = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], cursor=DescribeTopicPartitionsRequestCursor()
    )
    assert DescribeTopicPartitionsRequest.decode(cursor.encode(0), 0) == cursor
