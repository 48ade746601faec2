"""ShareGroupDescribe 1: state, epochs, members and assignments of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.share.coordinator import failed_description
from millstream.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from millstream.server.operations import tell_group_operations

if TYPE_CHECKING:
    from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
    from millstream.errors import ApiError
    from millstream.protocol.messages.share_group_describe import ShareGroupDescribeRequest
    from millstream.server.exchange import Exchange


def handle_share_group_describe(
    request: ShareGroupDescribeRequest, exchange: Exchange, share_groups: ShareGroupCoordinator
) -> None:
    """Describe each; each succeeds or fails for itself."""

    def described(response: ShareGroupDescribeResponse) -> None:
        if request.include_authorized_operations:
            tell_group_operations(response.groups)
        exchange.answer(response)

    share_groups.describe(request.group_ids, described)


def fail_share_group_describe(
    request: ShareGroupDescribeRequest, error: ApiError, version: int
) -> ShareGroupDescribeResponse:
    """Every group gets the error."""
    return ShareGroupDescribeResponse(
        groups=[failed_description(group_id, error) for group_id in request.group_ids]
    )
