"""DescribeGroups 0-6: state, members and assignments of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from millstream.server.coordinator_calls import caller_of
from millstream.server.operations import tell_group_operations

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
    from millstream.server.exchange import Exchange


def handle_describe_groups(
    request: DescribeGroupsRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Describe each; each succeeds or fails for itself."""

    def described(response: DescribeGroupsResponse) -> None:
        if request.include_authorized_operations:
            tell_group_operations(response.groups)
        exchange.answer(response)

    groups.describe_groups(request.groups, caller_of(exchange), described)


def fail_describe_groups(
    request: DescribeGroupsRequest, error: ApiError, version: int
) -> DescribeGroupsResponse:
    """Every group gets the error."""
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.groups
        ]
    )
