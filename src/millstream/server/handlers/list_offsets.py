"""ListOffsets 1-11: the offset of a time, or of what a special timestamp names.

Version 4 has leader epochs, 7 the largest timestamp, 8 the start of what is on local disk, 9 the
end of what is tiered, 11 what is to be tiered next.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ApiError,
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.replica.partition_reader import check_special_timestamp
from millstream.server.isolation import consumer_isolation
from millstream.storage.log.log_results import FetchIsolation

if TYPE_CHECKING:
    from millstream.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
    )
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.exchange import Exchange

_OFFSET_NOT_AVAILABLE_SINCE: Final = 5
_CONSUMER: Final = -1


def handle_list_offsets(
    request: ListOffsetsRequest, exchange: Exchange, replicas: ReplicaManager
) -> ListOffsetsResponse:
    """Look each partition up; each succeeds or fails for itself."""
    isolation = FetchIsolation.LOG_END
    if request.replica_id == _CONSUMER:
        isolation = consumer_isolation(request.isolation_level)
    counts = Counter(
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(topic.name, asked, exchange.version, isolation, replicas)
                    if counts[topic.name, asked.partition_index] == 1
                    else _failed(asked, InvalidRequest("a partition occurs more than once"))
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fail_list_offsets(
    request: ListOffsetsRequest, error: ApiError, version: int
) -> ListOffsetsResponse:
    """Every partition gets the error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_failed(asked, error) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(
    topic: str,
    asked: ListOffsetsPartition,
    version: int,
    isolation: FetchIsolation,
    replicas: ReplicaManager,
) -> ListOffsetsPartitionResponse:
    try:
        check_special_timestamp(asked.timestamp, version)
        found = replicas.list_offset(
            topic,
            asked.partition_index,
            asked.timestamp,
            isolation,
            asked.current_leader_epoch,
        )
    except OffsetNotAvailable as error:
        is_known = version >= _OFFSET_NOT_AVAILABLE_SINCE
        return _failed(asked, error if is_known else LeaderNotAvailable(str(error)))
    except ApiError as error:
        return _failed(asked, error)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _failed(asked: ListOffsetsPartition, error: ApiError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error.code
    )
