"""DeleteRecords 0-2: everything before an offset goes, at once here, soon on every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from millstream.replica.record_deletion import DeleteResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.errors import ApiError
    from millstream.protocol.messages.delete_records import DeleteRecordsRequest
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.exchange import Exchange


def handle_delete_records(
    request: DeleteRecordsRequest, exchange: Exchange, replicas: ReplicaManager
) -> DeleteRecordsResponse | None:
    """Delete in each partition; the answer waits for the replicas."""
    results = replicas.delete_records(
        [
            (topic.name, asked.partition_index, asked.offset)
            for topic in request.topics
            for asked in topic.partitions
        ],
        request.timeout_ms,
        lambda results: exchange.answer(_response(request, results)),
    )
    return None if results is None else _response(request, results)


def fail_delete_records(
    request: DeleteRecordsRequest, error: ApiError, version: int
) -> DeleteRecordsResponse:
    """Every partition gets the error."""
    count = sum(len(topic.partitions) for topic in request.topics)
    return _response(request, [DeleteResult(error)] * count)


def _response(
    request: DeleteRecordsRequest, results: Sequence[DeleteResult]
) -> DeleteRecordsResponse:
    in_order = iter(results)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index,
                        low_watermark=result.low_watermark,
                        error_code=0 if result.error is None else result.error.code,
                    )
                    for asked, result in zip(topic.partitions, in_order, strict=False)
                ],
            )
            for topic in request.topics
        ]
    )
