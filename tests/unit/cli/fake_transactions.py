"""The cluster in memory with transactions: one coordinator, and what partitions remember."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import InvalidRegularExpression, TransactionalIdNotFound
from millstream.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    describe_transactions,
    list_transactions,
)
from millstream.protocol.messages.describe_producers import (
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from millstream.protocol.messages.find_coordinator import Coordinator
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster

if TYPE_CHECKING:
    from millstream.protocol.message import Message


@dataclass
class FakeTransaction:
    """A transactional id as its coordinator has it."""

    producer_id: int
    state: str = "Ongoing"
    epoch: int = 0
    partitions: list[int] = field(default_factory=list)
    start_ms: int = 1000


class FakeTransactions(FakeCluster):
    """One broker that coordinates all transactions."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.transactions: dict[str, FakeTransaction] = {}
        self.producers: list[list[ProducerState]] = [[] for _ in range(partitions)]
        self.ends_when_asked = False
        """Whether open transactions end as soon as their coordinator was asked."""
        self.marker_error_code = 0

    def _answer(self, request: Message) -> Message:
        match request:
            case FindCoordinatorRequest(coordinator_keys=keys):
                found = [
                    Coordinator(key=key, node_id=1, host=self.address.host, port=9092)
                    for key in keys
                ]
                return FindCoordinatorResponse(coordinators=found)
            case ListTransactionsRequest(transactional_id_pattern="("):
                return ListTransactionsResponse(error_code=InvalidRegularExpression.code)
            case ListTransactionsRequest():
                return self._list(request)
            case DescribeTransactionsRequest(transactional_ids=names):
                states = [self._describe(each) for each in names]
                return DescribeTransactionsResponse(transaction_states=states)
            case DescribeProducersRequest(topics=[topic]):
                partitions = [
                    PartitionResponse(partition_index=each, active_producers=self.producers[each])
                    for each in topic.partition_indexes
                ]
                answer = TopicResponse(name=TOPIC, partitions=partitions)
                return DescribeProducersResponse(topics=[answer])
            case WriteTxnMarkersRequest():
                return self._write(request)
        return super()._answer(request)

    def _list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        states, producers = request.state_filters, request.producer_id_filters
        found = [
            list_transactions.TransactionState(
                transactional_id=name,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            for name, each in self.transactions.items()
            if (not states or each.state in states)
            and (not producers or each.producer_id in producers)
        ]
        if self.ends_when_asked:
            self.producers = [[] for _ in self.producers]
        return ListTransactionsResponse(transaction_states=found)

    def _describe(self, name: str) -> describe_transactions.TransactionState:
        found = self.transactions.get(name)
        if found is None:
            return describe_transactions.TransactionState(
                transactional_id=name, error_code=TransactionalIdNotFound.code
            )
        topic = describe_transactions.TopicData(topic=TOPIC, partitions=found.partitions)
        return describe_transactions.TransactionState(
            transactional_id=name,
            transaction_state=found.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=[topic] if found.partitions else [],
        )

    def _write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        [marker] = request.markers
        [topic] = marker.topics
        [partition] = topic.partition_indexes
        if not self.marker_error_code:
            self.producers[partition] = [
                each for each in self.producers[partition] if each.producer_id != marker.producer_id
            ]
        result = WritableTxnMarkerPartitionResult(
            partition_index=partition, error_code=self.marker_error_code
        )
        results = [WritableTxnMarkerTopicResult(name=topic.name, partitions=[result])]
        answer = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=results)
        return WriteTxnMarkersResponse(markers=[answer])
