"""OffsetDelete 0: delete offsets of topics that a group does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.offset_delete import OffsetDeleteResponse
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.offset_delete import OffsetDeleteRequest
    from millstream.server.exchange import Exchange


def handle_offset_delete(
    request: OffsetDeleteRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Delete them."""
    done = answering(exchange, request, fail_offset_delete)
    groups.delete_offsets(request, caller_of(exchange), done)


def fail_offset_delete(
    request: OffsetDeleteRequest, error: ApiError, version: int
) -> OffsetDeleteResponse:
    """The error for all."""
    return OffsetDeleteResponse(error_code=error.code)
