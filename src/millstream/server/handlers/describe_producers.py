"""DescribeProducers 0: the producers that a partition's leader knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError
from millstream.metadata.topic_names import check_topic_name
from millstream.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from millstream.protocol.messages.describe_producers import DescribeProducersRequest
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.exchange import Exchange
    from millstream.storage.log.producer_entry import ProducerEntry

_NONE: Final = -1


def handle_describe_producers(
    request: DescribeProducersRequest, exchange: Exchange, replicas: ReplicaManager
) -> DescribeProducersResponse:
    """Describe each partition; each succeeds or fails for itself."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _answer(topic.name, index, replicas) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def fail_describe_producers(
    request: DescribeProducersRequest, error: ApiError, version: int
) -> DescribeProducersResponse:
    """Every partition gets the error."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_failed(index, error) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _answer(topic: str, index: int, replicas: ReplicaManager) -> PartitionResponse:
    try:
        check_topic_name(topic)
        producers = replicas.describe_producers(topic, index)
    except ApiError as error:
        return _failed(index, error)
    return PartitionResponse(
        partition_index=index, active_producers=[_state(entry) for entry in producers]
    )


def _state(entry: ProducerEntry) -> ProducerState:
    first = entry.transaction_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NONE if first is None else first,
    )


def _failed(index: int, error: ApiError) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error.code, error_message=str(error))
