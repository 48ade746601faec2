"""DeleteGroups 0-2: delete empty groups of any kind, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from millstream.server.coordinator_calls import caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.delete_groups import DeleteGroupsRequest
    from millstream.server.exchange import Exchange


def handle_delete_groups(
    request: DeleteGroupsRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Delete each; each succeeds or fails for itself."""
    groups.delete_groups(request.groups_names, caller_of(exchange), exchange.answer)


def fail_delete_groups(
    request: DeleteGroupsRequest, error: ApiError, version: int
) -> DeleteGroupsResponse:
    """Every group gets the error."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )
