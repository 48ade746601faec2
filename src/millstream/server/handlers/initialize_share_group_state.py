"""InitializeShareGroupState 0: share partitions begin, at an offset or where their leader says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from millstream.server.share_state_calls import ask_each, fail_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import ShareKey
    from millstream.errors import ApiError
    from millstream.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        PartitionData,
    )
    from millstream.server.exchange import Exchange


def handle_initialize_share_group_state(
    request: InitializeShareGroupStateRequest, exchange: Exchange, shares: ShareCoordinator
) -> None:
    """Begin the share partitions; each partition succeeds or fails for itself."""

    def ask(key: ShareKey, asked: PartitionData, take: Callable[[PartitionResult], None]) -> None:
        shares.initialize(
            key,
            asked.state_epoch,
            asked.start_offset,
            lambda error: take(_result(key.partition, error)),
        )

    ask_each(
        request, ask, InitializeStateResult, InitializeShareGroupStateResponse, exchange.answer
    )


def fail_initialize_share_group_state(
    request: InitializeShareGroupStateRequest, error: ApiError, version: int
) -> InitializeShareGroupStateResponse:
    """Every partition gets the error."""
    return fail_each(
        request,
        lambda partition: _result(partition, error),
        InitializeStateResult,
        InitializeShareGroupStateResponse,
    )


def _result(partition: int, error: ApiError | None) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
    )
