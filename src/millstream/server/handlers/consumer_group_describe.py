"""ConsumerGroupDescribe 0-1: state, epochs, members and assignments of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from millstream.server.coordinator_calls import caller_of
from millstream.server.operations import tell_group_operations

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from millstream.server.exchange import Exchange


def handle_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Describe each; each succeeds or fails for itself."""

    def described(response: ConsumerGroupDescribeResponse) -> None:
        if request.include_authorized_operations:
            tell_group_operations(response.groups)
        exchange.answer(response)

    groups.consumer_group_describe(request.group_ids, caller_of(exchange), described)


def fail_consumer_group_describe(
    request: ConsumerGroupDescribeRequest, error: ApiError, version: int
) -> ConsumerGroupDescribeResponse:
    """Every group gets the error."""
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=each, error_code=error.code, error_message=str(error))
            for each in request.group_ids
        ]
    )
