"""DescribeShareGroupOffsets 0-1: where share groups stand. Version 1 has the lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.gathering import gather
from millstream.coordinator.group.share.offsets import failed_offsets
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from millstream.coordinator.group.share.offsets import ShareGroupOffsets
    from millstream.errors import ApiError
    from millstream.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
    )
    from millstream.server.exchange import Exchange


def handle_describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, exchange: Exchange, offsets: ShareGroupOffsets
) -> None:
    """Each group succeeds or fails for itself."""
    gather(
        request.groups,
        offsets.describe,
        lambda found: exchange.answer(DescribeShareGroupOffsetsResponse(groups=found)),
    )


def fail_describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, error: ApiError, version: int
) -> DescribeShareGroupOffsetsResponse:
    """Every group gets the error."""
    return DescribeShareGroupOffsetsResponse(
        groups=[failed_offsets(asked, error) for asked in request.groups]
    )
