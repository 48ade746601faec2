"""DeleteShareGroupOffsets 0: a share group without members forgets topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidGroupId
from millstream.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from millstream.server.coordinator_calls import answering

if TYPE_CHECKING:
    from millstream.coordinator.group.share.offsets import ShareGroupOffsets
    from millstream.errors import ApiError
    from millstream.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
    )
    from millstream.server.exchange import Exchange


def handle_delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, exchange: Exchange, offsets: ShareGroupOffsets
) -> None:
    """Let the coordinator decide."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    offsets.delete(request, answering(exchange, request, fail_delete_share_group_offsets))


def fail_delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, error: ApiError, version: int
) -> DeleteShareGroupOffsetsResponse:
    """The error alone."""
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
