"""JoinGroup 0-9: enter a classic group; answered when the generation is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.join_group import JoinGroupRequest
    from millstream.server.exchange import Exchange


def handle_join_group(
    request: JoinGroupRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Let the member wait for the others."""
    groups.join_group(request, caller_of(exchange), answering(exchange, request, fail_join_group))


def fail_join_group(request: JoinGroupRequest, error: ApiError, version: int) -> JoinGroupResponse:
    """No generation."""
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
