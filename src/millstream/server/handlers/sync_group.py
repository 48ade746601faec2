"""SyncGroup 0-5: hand over (leader) or fetch (all) the assignment of a generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import InconsistentGroupProtocol
from millstream.protocol.messages.sync_group import SyncGroupResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.sync_group import SyncGroupRequest
    from millstream.server.exchange import Exchange

_PROTOCOL_REQUIRED_SINCE: Final = 5


def handle_sync_group(
    request: SyncGroupRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Let the member wait for the leader."""
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if exchange.version >= _PROTOCOL_REQUIRED_SINCE and not has_protocol:
        raise InconsistentGroupProtocol("protocol type and name are required")
    groups.sync_group(request, caller_of(exchange), answering(exchange, request, fail_sync_group))


def fail_sync_group(request: SyncGroupRequest, error: ApiError, version: int) -> SyncGroupResponse:
    """No assignment."""
    return SyncGroupResponse(error_code=error.code)
