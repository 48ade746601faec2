"""EndTxn 0-5: a producer commits or aborts its transaction.

From version 5 on (transaction.version 2) every end begins a new epoch, which the answer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.transaction.ending import EndRequest
from millstream.errors import ApiError, InvalidProducerEpoch, ProducerFenced
from millstream.protocol.messages.end_txn import EndTxnResponse

if TYPE_CHECKING:
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.protocol.messages.end_txn import EndTxnRequest
    from millstream.server.exchange import Exchange

_FENCED_SINCE: Final = 2
_EPOCHS_SINCE: Final = 5


def handle_end_txn(
    request: EndTxnRequest, exchange: Exchange, transactions: TransactionCoordinator
) -> None:
    """Let the coordinator decide; the markers follow by themselves."""
    has_epochs = exchange.version >= _EPOCHS_SINCE

    def ended(answer: ProducerStamp | ApiError) -> None:
        if isinstance(answer, ApiError):
            exchange.answer(fail_end_txn(request, answer, exchange.version))
        elif has_epochs:
            exchange.answer(EndTxnResponse(producer_id=answer[0], producer_epoch=answer[1]))
        else:
            exchange.answer(EndTxnResponse())

    transactions.end(
        request.transactional_id,
        EndRequest(
            ProducerStamp(request.producer_id, request.producer_epoch),
            request.committed,
            2 if has_epochs else 0,
        ),
        ended,
    )


def fail_end_txn(request: EndTxnRequest, error: ApiError, version: int) -> EndTxnResponse:
    """The answer without an end."""
    if isinstance(error, ProducerFenced) and version < _FENCED_SINCE:
        error = InvalidProducerEpoch(str(error))
    return EndTxnResponse(error_code=error.code)
