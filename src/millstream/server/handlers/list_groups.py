"""ListGroups 0-5: the groups that this broker coordinates, by state and type if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.list_groups import ListGroupsResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.list_groups import ListGroupsRequest
    from millstream.server.exchange import Exchange


def handle_list_groups(
    request: ListGroupsRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """List them."""
    groups.list_groups(request, caller_of(exchange), answering(exchange, request, fail_list_groups))


def fail_list_groups(
    request: ListGroupsRequest, error: ApiError, version: int
) -> ListGroupsResponse:
    """No groups, and why."""
    return ListGroupsResponse(error_code=error.code)
