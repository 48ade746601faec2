"""WriteShareGroupState 0-1: leaders keep what became of records. Version 1 counts what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.share.state import StateChange, read_batches
from millstream.protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from millstream.server.share_state_calls import ask_each, fail_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import ShareKey
    from millstream.errors import ApiError
    from millstream.protocol.messages.write_share_group_state import (
        PartitionData,
        WriteShareGroupStateRequest,
    )
    from millstream.server.exchange import Exchange


def handle_write_share_group_state(
    request: WriteShareGroupStateRequest, exchange: Exchange, shares: ShareCoordinator
) -> None:
    """Keep the states; each partition succeeds or fails for itself."""

    def ask(key: ShareKey, asked: PartitionData, take: Callable[[PartitionResult], None]) -> None:
        change = StateChange(
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            read_batches(asked.state_batches),
        )
        shares.write(key, change, lambda error: take(_result(key.partition, error)))

    ask_each(request, ask, WriteStateResult, WriteShareGroupStateResponse, exchange.answer)


def fail_write_share_group_state(
    request: WriteShareGroupStateRequest, error: ApiError, version: int
) -> WriteShareGroupStateResponse:
    """Every partition gets the error."""
    return fail_each(
        request,
        lambda partition: _result(partition, error),
        WriteStateResult,
        WriteShareGroupStateResponse,
    )


def _result(partition: int, error: ApiError | None) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
    )
