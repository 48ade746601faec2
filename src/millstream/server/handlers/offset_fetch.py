"""OffsetFetch 1-10: how far groups have read; several from version 8 on, by topic id from 10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from millstream.server.coordinator_calls import caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.offset_fetch import OffsetFetchRequest
    from millstream.server.exchange import Exchange

_GROUPS_SINCE: Final = 8
_GROUP_ERROR_SINCE: Final = 2
"""Before, an error of the whole group is given with each partition."""
_NO_OFFSET: Final = -1


def handle_offset_fetch(
    request: OffsetFetchRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Look up each group; each succeeds or fails for itself."""
    version = exchange.version

    def done(found: list[OffsetFetchResponseGroup]) -> None:
        if version >= _GROUPS_SINCE:
            exchange.answer(OffsetFetchResponse(groups=found))
        else:
            exchange.answer(_of_one_group(request, found[0], version))

    asked = request.groups if version >= _GROUPS_SINCE else [_only_group(request)]
    groups.fetch_offsets(asked, caller_of(exchange), done, requires_stable=request.require_stable)


def fail_offset_fetch(
    request: OffsetFetchRequest, error: ApiError, version: int
) -> OffsetFetchResponse:
    """Every group gets the error."""
    if version >= _GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=each.group_id, error_code=error.code)
                for each in request.groups
            ]
        )
    failed = OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)
    return _of_one_group(request, failed, version)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _of_one_group(
    request: OffsetFetchRequest, group: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    if group.error_code and version < _GROUP_ERROR_SINCE:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=_NO_OFFSET,
                            error_code=group.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ]
        )
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
