"""ReadShareGroupStateSummary 0-1: how far share partitions are. Version 1 counts what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from millstream.server.share_state_calls import ask_each, fail_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import ShareKey, StateSummary
    from millstream.protocol.messages.read_share_group_state_summary import (
        PartitionData,
        ReadShareGroupStateSummaryRequest,
    )
    from millstream.server.exchange import Exchange


def handle_read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, exchange: Exchange, shares: ShareCoordinator
) -> None:
    """Read each; each succeeds or fails for itself."""

    def ask(key: ShareKey, asked: PartitionData, take: Callable[[PartitionResult], None]) -> None:
        shares.summarize(
            key, asked.leader_epoch, lambda outcome: take(_result(key.partition, outcome))
        )

    ask_each(
        request, ask, ReadStateSummaryResult, ReadShareGroupStateSummaryResponse, exchange.answer
    )


def fail_read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, error: ApiError, version: int
) -> ReadShareGroupStateSummaryResponse:
    """Every partition gets the error."""
    return fail_each(
        request,
        lambda partition: _result(partition, error),
        ReadStateSummaryResult,
        ReadShareGroupStateSummaryResponse,
    )


def _result(partition: int, outcome: StateSummary | ApiError) -> PartitionResult:
    if isinstance(outcome, ApiError):
        return PartitionResult(
            partition=partition, error_code=outcome.code, error_message=str(outcome)
        )
    return PartitionResult(
        partition=partition,
        state_epoch=outcome.state_epoch,
        leader_epoch=outcome.leader_epoch,
        start_offset=outcome.start_offset,
        delivery_complete_count=outcome.complete_count,
    )
