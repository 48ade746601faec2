"""ReadShareGroupState 0: what became of records, for the broker that leads it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from millstream.server.share_state_calls import ask_each, fail_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import ShareKey, ShareState
    from millstream.protocol.messages.read_share_group_state import (
        PartitionData,
        ReadShareGroupStateRequest,
    )
    from millstream.server.exchange import Exchange


def handle_read_share_group_state(
    request: ReadShareGroupStateRequest, exchange: Exchange, shares: ShareCoordinator
) -> None:
    """Read each; each succeeds or fails for itself."""

    def ask(key: ShareKey, asked: PartitionData, take: Callable[[PartitionResult], None]) -> None:
        shares.read(key, asked.leader_epoch, lambda outcome: take(_result(key.partition, outcome)))

    ask_each(request, ask, ReadStateResult, ReadShareGroupStateResponse, exchange.answer)


def fail_read_share_group_state(
    request: ReadShareGroupStateRequest, error: ApiError, version: int
) -> ReadShareGroupStateResponse:
    """Every partition gets the error."""
    return fail_each(
        request,
        lambda partition: _result(partition, error),
        ReadStateResult,
        ReadShareGroupStateResponse,
    )


def _result(partition: int, outcome: ShareState | ApiError) -> PartitionResult:
    if isinstance(outcome, ApiError):
        return PartitionResult(
            partition=partition, error_code=outcome.code, error_message=str(outcome)
        )
    return PartitionResult(
        partition=partition,
        state_epoch=outcome.state_epoch,
        start_offset=outcome.start_offset,
        state_batches=[
            StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in outcome.batches
        ],
    )
