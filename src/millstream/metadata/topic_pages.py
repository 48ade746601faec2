"""Answers to DescribeTopicPartitions: many partitions, a page at a time.

The broker's handler asks with the names that the asker may see. A page ends after a number of
partitions; the cursor says where the next one begins, also when topics came or went in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidTopic, UnknownTopicOrPartition
from millstream.metadata.cache import leader_error, offline_replicas
from millstream.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from millstream.metadata.topics import NO_LEADER
from millstream.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.metadata.cluster import ClusterImage
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.topics import PartitionRegistration

_NEWEST_METADATA = 13
"""The error codes of this API are those of a recent Metadata."""


def describe_topic_partitions(
    image: MetadataImage,
    names: Iterable[str],
    listener: str,
    *,
    partition_limit: int,
    first: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    """One page of topics in order of name, from `first` (topic, partition) on."""
    response = DescribeTopicPartitionsResponse()
    left = partition_limit
    for name in sorted(set(names)):
        if first is not None and name < first[0]:
            continue
        start = first[1] if first is not None and name == first[0] else 0
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=start
            )
            return response
        topic, rest = _topic(image, name, listener, start, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        if rest is not None:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=rest
            )
            return response
    return response


def _topic(
    image: MetadataImage, name: str, listener: str, start: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """A topic's partitions from `start` on, and where its next page begins."""
    described = DescribeTopicPartitionsResponseTopic(name=name, is_internal=name in INTERNAL_TOPICS)
    topic = image.topics.by_name.get(name)
    if topic is None:
        described.error_code = _missing_code(name)
        return described, None
    described.topic_id = topic.id
    wanted = [each for each in sorted(topic.partitions) if each >= start]
    described.partitions = [
        _partition(image.cluster, partition_id, topic.partitions[partition_id], listener)
        for partition_id in wanted[:limit]
    ]
    return described, wanted[limit] if len(wanted) > limit else None


def _missing_code(name: str) -> int:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return InvalidTopic.code
    return UnknownTopicOrPartition.code


def _partition(
    cluster: ClusterImage, partition_id: int, partition: PartitionRegistration, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    error_code = leader_error(cluster, partition, listener, _NEWEST_METADATA)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error_code,
        partition_index=partition_id,
        leader_id=NO_LEADER if error_code else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(cluster, partition, listener),
    )
