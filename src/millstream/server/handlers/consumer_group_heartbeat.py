"""ConsumerGroupHeartbeat 0-1: everything that a member of a consumer group says (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )
    from millstream.server.exchange import Exchange


def handle_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Let the coordinator answer with epoch and assignment."""
    groups.consumer_group_heartbeat(
        request,
        caller_of(exchange),
        answering(exchange, request, fail_consumer_group_heartbeat),
    )


def fail_consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, error: ApiError, version: int
) -> ConsumerGroupHeartbeatResponse:
    """No epoch."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
