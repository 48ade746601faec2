"""DescribeLogDirs 1-5: what the log directories hold, and how much room they have.

Version 3 has an error of the whole, 4 sizes, 5 cordoned directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.exchange import Exchange
    from millstream.storage.manager.log_dir_description import LogDirDescription


def handle_describe_log_dirs(
    request: DescribeLogDirsRequest, exchange: Exchange, replicas: ReplicaManager
) -> DescribeLogDirsResponse:
    """Every directory, with the partitions asked for; null asks for all."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_result(found, wanted) for found in replicas.describe_log_dirs()]
    )


def fail_describe_log_dirs(
    request: DescribeLogDirsRequest, error: ApiError, version: int
) -> DescribeLogDirsResponse:
    """The answer without directories."""
    return DescribeLogDirsResponse(error_code=error.code)


def _result(found: LogDirDescription, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in found.logs:
        name = log.partition.topic
        if wanted is None or (name, log.partition.partition) in wanted:
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=log.partition.partition,
                    partition_size=log.size,
                    offset_lag=log.offset_lag,
                    is_future_key=log.is_future,
                )
            )
    return DescribeLogDirsResult(
        error_code=0 if found.error is None else found.error.code,
        log_dir=found.path,
        topics=list(topics.values()),
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
        is_cordoned=found.is_cordoned,
    )
