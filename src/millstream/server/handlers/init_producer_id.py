"""InitProducerId 0-5: an id for an idempotent producer, or the next epoch of a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.transaction.coordinator import expected_producer
from millstream.errors import ApiError, InvalidProducerEpoch, ProducerFenced
from millstream.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
    from millstream.server.exchange import Exchange
    from millstream.server.producer_ids import ProducerIdManager

_FENCED_SINCE: Final = 4
"""Older producers know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""


def handle_init_producer_id(
    request: InitProducerIdRequest,
    exchange: Exchange,
    producer_ids: ProducerIdManager,
    transactions: TransactionCoordinator,
) -> None:
    """Without a transactional id: a fresh id with epoch 0, whatever the producer had before."""
    expected = expected_producer(request.producer_id, request.producer_epoch)

    def initialized(answer: ProducerStamp | ApiError) -> None:
        if isinstance(answer, ApiError):
            exchange.answer(fail_init_producer_id(request, answer, exchange.version))
        else:
            exchange.answer(InitProducerIdResponse(producer_id=answer[0], producer_epoch=answer[1]))

    def generated(found: int | ApiError) -> None:
        if isinstance(found, ApiError):
            exchange.answer(fail_init_producer_id(request, found, exchange.version))
        else:
            exchange.answer(InitProducerIdResponse(producer_id=found, producer_epoch=0))

    if request.transactional_id is None:
        producer_ids.generate(generated)
        return
    transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected, initialized
    )


def fail_init_producer_id(
    request: InitProducerIdRequest, error: ApiError, version: int
) -> InitProducerIdResponse:
    """The answer without an id."""
    if isinstance(error, ProducerFenced) and version < _FENCED_SINCE:
        error = InvalidProducerEpoch(str(error))
    return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
