"""AddOffsetsToTxn 0-4: a transaction will commit the offsets of a group.

The partition of `__consumer_offsets` that the group's offsets are in becomes part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.routing import partition_for
from millstream.errors import ApiError, InvalidProducerEpoch, ProducerFenced
from millstream.metadata.topic_names import GROUP_OFFSETS_TOPIC
from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from millstream.server.exchange import Exchange
    from millstream.server.internal_topics import InternalTopics

_FENCED_SINCE: Final = 2
_CLIENT_VERSION: Final = 0
"""Producers of transaction.version 2 do not send this request."""


def handle_add_offsets_to_txn(
    request: AddOffsetsToTxnRequest,
    exchange: Exchange,
    transactions: TransactionCoordinator,
    topics: InternalTopics,
) -> None:
    """Add the group's partition."""

    def answer(error: ApiError | None) -> None:
        if error is None:
            exchange.answer(AddOffsetsToTxnResponse())
        else:
            exchange.answer(fail_add_offsets_to_txn(request, error, exchange.version))

    def ensured(error: ApiError | None) -> None:
        count = topics.partition_count(GROUP_OFFSETS_TOPIC)
        if error is not None or not count:
            answer(error)
            return
        transactions.add_partitions(
            request.transactional_id,
            ProducerStamp(request.producer_id, request.producer_epoch),
            [TopicPartition(GROUP_OFFSETS_TOPIC, partition_for(request.group_id, count))],
            _CLIENT_VERSION,
            answer,
        )

    topics.ensure(GROUP_OFFSETS_TOPIC, ensured)


def fail_add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, error: ApiError, version: int
) -> AddOffsetsToTxnResponse:
    """The answer that nothing was added."""
    if isinstance(error, ProducerFenced) and version < _FENCED_SINCE:
        error = InvalidProducerEpoch(str(error))
    return AddOffsetsToTxnResponse(error_code=error.code)
