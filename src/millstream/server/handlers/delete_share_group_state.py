"""DeleteShareGroupState 0: share partitions are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from millstream.server.share_state_calls import ask_each, fail_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.coordinator.share.state import ShareKey
    from millstream.errors import ApiError
    from millstream.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        PartitionData,
    )
    from millstream.server.exchange import Exchange


def handle_delete_share_group_state(
    request: DeleteShareGroupStateRequest, exchange: Exchange, shares: ShareCoordinator
) -> None:
    """Forget the share partitions; each partition succeeds or fails for itself."""

    def ask(key: ShareKey, asked: PartitionData, take: Callable[[PartitionResult], None]) -> None:
        shares.delete(key, lambda error: take(_result(key.partition, error)))

    ask_each(request, ask, DeleteStateResult, DeleteShareGroupStateResponse, exchange.answer)


def fail_delete_share_group_state(
    request: DeleteShareGroupStateRequest, error: ApiError, version: int
) -> DeleteShareGroupStateResponse:
    """Every partition gets the error."""
    return fail_each(
        request,
        lambda partition: _result(partition, error),
        DeleteStateResult,
        DeleteShareGroupStateResponse,
    )


def _result(partition: int, error: ApiError | None) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
    )
