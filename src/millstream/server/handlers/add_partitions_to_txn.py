"""AddPartitionsToTxn 0-5: partitions that a transaction writes to.

Up to version 3 a producer sends it for itself. From 4 on brokers do, for several producers at once:
leaders that got records of a transaction add their partitions, or only verify that a producer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.errors import (
    NO_ERROR,
    ApiError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
    from millstream.server.exchange import Exchange

_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4
_ABORTABLE_SINCE: Final = 5
_OLD_CLIENT, _NEW_CLIENT = 0, 2


def handle_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest,
    exchange: Exchange,
    transactions: TransactionCoordinator,
    metadata: KRaftMetadataCache,
) -> None:
    """Ask the coordinator for each transaction; answer when all are decided."""
    wanted = _transactions(request, exchange.version)
    results: dict[str, Mapping[TopicPartition, int]] = {}

    def decided(
        transaction: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, int]
    ) -> None:
        results[transaction.transactional_id] = codes
        if len(results) == len(wanted):
            exchange.answer(_response(wanted, results, exchange.version))

    if not wanted:
        exchange.answer(_response(wanted, results, exchange.version))
    for each in wanted:
        _decide(each, exchange.version, transactions, metadata, decided)


def fail_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, error: ApiError, version: int
) -> AddPartitionsToTxnResponse:
    """Every partition gets the error."""
    if version >= _BATCHED_SINCE:
        return AddPartitionsToTxnResponse(error_code=error.code)
    wanted = _transactions(request, version)
    codes = {
        each.transactional_id: dict.fromkeys(_partitions(each), _code(error, version))
        for each in wanted
    }
    return _response(wanted, codes, version)


def _transactions(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    if version >= _BATCHED_SINCE:
        return list({each.transactional_id: each for each in request.transactions}.values())
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for topic in transaction.topics
        for partition in topic.partitions
    ]


def _decide(
    transaction: AddPartitionsToTxnTransaction,
    version: int,
    transactions: TransactionCoordinator,
    metadata: KRaftMetadataCache,
    decided: Callable[[AddPartitionsToTxnTransaction, Mapping[TopicPartition, int]], None],
) -> None:
    partitions = _partitions(transaction)
    unknown = {
        each for each in partitions if metadata.partition(each.topic, each.partition) is None
    }
    if unknown:
        decided(
            transaction,
            {
                each: (UnknownTopicOrPartition if each in unknown else OperationNotAttempted).code
                for each in partitions
            },
        )
        return

    def answered(error: ApiError | None) -> None:
        code = NO_ERROR if error is None else _code(error, version)
        decided(transaction, dict.fromkeys(partitions, code))

    def verified(missing: set[TopicPartition] | ApiError) -> None:
        if isinstance(missing, ApiError):
            answered(missing)
            return
        absent = TransactionAbortable if version >= _ABORTABLE_SINCE else InvalidTxnState
        decided(
            transaction,
            {each: absent.code if each in missing else NO_ERROR for each in partitions},
        )

    producer = ProducerStamp(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        transactions.missing_partitions(
            transaction.transactional_id, producer, partitions, verified
        )
        return
    client_version = _NEW_CLIENT if version >= _BATCHED_SINCE else _OLD_CLIENT
    transactions.add_partitions(
        transaction.transactional_id, producer, partitions, client_version, answered
    )


def _code(error: ApiError, version: int) -> int:
    if isinstance(error, ProducerFenced) and version < _FENCED_SINCE:
        return InvalidProducerEpoch.code
    return error.code


def _response(
    wanted: list[AddPartitionsToTxnTransaction],
    results: Mapping[str, Mapping[TopicPartition, int]],
    version: int,
) -> AddPartitionsToTxnResponse:
    by_transaction = [
        AddPartitionsToTxnResult(
            transactional_id=each.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=partition,
                            partition_error_code=results[each.transactional_id][
                                TopicPartition(topic.name, partition)
                            ],
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in each.topics
            ],
        )
        for each in wanted
    ]
    if version >= _BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_transaction=by_transaction)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=by_transaction[0].topic_results)
