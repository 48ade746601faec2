"""DescribeTransactions 0: what transactional ids are doing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.coordinator.transaction.metadata import TransactionMetadata, by_topic
from millstream.errors import ApiError
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.protocol.messages.describe_transactions import DescribeTransactionsRequest
    from millstream.server.exchange import Exchange


def handle_describe_transactions(
    request: DescribeTransactionsRequest, exchange: Exchange, transactions: TransactionCoordinator
) -> None:
    """Ask for each; answer when all are known."""
    ids = list(dict.fromkeys(request.transactional_ids))
    found: dict[str, TransactionState] = {}

    def described(transactional_id: str, answer: TransactionMetadata | ApiError) -> None:
        found[transactional_id] = _state(transactional_id, answer)
        if len(found) == len(ids):
            states = [found[each] for each in ids]
            exchange.answer(DescribeTransactionsResponse(transaction_states=states))

    if not ids:
        exchange.answer(DescribeTransactionsResponse())
    for each in ids:
        transactions.describe(each, partial(described, each))


def fail_describe_transactions(
    request: DescribeTransactionsRequest, error: ApiError, version: int
) -> DescribeTransactionsResponse:
    """Every id gets the error."""
    states = [_state(each, error) for each in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _state(transactional_id: str, answer: TransactionMetadata | ApiError) -> TransactionState:
    if isinstance(answer, ApiError):
        return TransactionState(error_code=answer.code, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=answer.state.title,
        transaction_timeout_ms=answer.timeout_ms,
        transaction_start_time_ms=answer.start_ms,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        topics=[
            TopicData(topic=topic.topic, partitions=topic.partition_ids)
            for topic in by_topic(answer.partitions)
        ],
    )
