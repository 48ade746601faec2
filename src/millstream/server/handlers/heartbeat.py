"""Heartbeat 0-4: a member of a classic group is alive, and learns whether it must join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.heartbeat import HeartbeatRequest
    from millstream.server.exchange import Exchange


def handle_heartbeat(
    request: HeartbeatRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Begin the member's session anew."""
    groups.heartbeat(request, caller_of(exchange), answering(exchange, request, fail_heartbeat))


def fail_heartbeat(request: HeartbeatRequest, error: ApiError, version: int) -> HeartbeatResponse:
    """The error alone."""
    return HeartbeatResponse(error_code=error.code)
