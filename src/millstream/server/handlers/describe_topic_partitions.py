"""DescribeTopicPartitions 0: topics and partitions, a page at a time (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidRequest
from millstream.metadata.topic_pages import describe_topic_partitions
from millstream.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from millstream.server.operations import TOPIC_OPERATIONS

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
    )
    from millstream.server.exchange import Exchange


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest,
    exchange: Exchange,
    metadata: KRaftMetadataCache,
    partition_limit: int,
) -> DescribeTopicPartitionsResponse:
    """One page, from the cursor on; without names it is about all topics."""
    cursor = request.cursor
    first = None
    names = [topic.name for topic in request.topics] or metadata.topic_names()
    if cursor is not None:
        if cursor.partition_index < 0:
            raise InvalidRequest(f"a cursor at partition {cursor.partition_index}")
        first = cursor.topic_name, cursor.partition_index
    limit = min(request.response_partition_limit, partition_limit)
    response = describe_topic_partitions(
        metadata.image, names, exchange.listener, partition_limit=max(limit, 1), first=first
    )
    for topic in response.topics:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def fail_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, error: ApiError, version: int
) -> DescribeTopicPartitionsResponse:
    """Every topic gets the error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
            for topic in request.topics
        ]
    )
