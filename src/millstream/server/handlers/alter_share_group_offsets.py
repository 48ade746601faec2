"""AlterShareGroupOffsets 0: a share group without members begins elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidGroupId
from millstream.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from millstream.server.coordinator_calls import answering

if TYPE_CHECKING:
    from millstream.coordinator.group.share.offsets import ShareGroupOffsets
    from millstream.errors import ApiError
    from millstream.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
    )
    from millstream.server.exchange import Exchange


def handle_alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, exchange: Exchange, offsets: ShareGroupOffsets
) -> None:
    """Let the coordinator decide."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    offsets.alter(request, answering(exchange, request, fail_alter_share_group_offsets))


def fail_alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, error: ApiError, version: int
) -> AlterShareGroupOffsetsResponse:
    """The error alone."""
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
