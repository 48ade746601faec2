"""ShareGroupHeartbeat 1: a member of a share group joins, goes on, leaves, and learns its part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from millstream.server.exchange import Exchange


def handle_share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, exchange: Exchange, share_groups: ShareGroupCoordinator
) -> None:
    """Let the coordinator decide."""
    share_groups.heartbeat(
        request,
        caller_of(exchange),
        answering(exchange, request, fail_share_group_heartbeat),
    )


def fail_share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, error: ApiError, version: int
) -> ShareGroupHeartbeatResponse:
    """The error alone."""
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
