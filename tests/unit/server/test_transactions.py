"""Transactions through the handlers: from InitProducerId to what readers see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.protocol.messages.describe_transactions import DescribeTransactionsRequest
from millstream.protocol.messages.end_txn import EndTxnRequest
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.list_transactions import ListTransactionsRequest
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.records import RecordBatchBuilder
from tests.unit.server.harness import Broker
from tests.unit.server.requests import find_coordinator_request
from tests.unit.storage.batches import NOW_MS

if TYPE_CHECKING:
    from millstream.protocol.messages.init_producer_id import InitProducerIdResponse

TOPICS = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]


class Producer:
    """A transactional producer, as far as its requests go."""

    def __init__(self, broker: Broker, transactional_id: str = "tx") -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        broker.ask(find_coordinator_request(4, 1))
        self.take(self.init())
        self.sequence = 0

    def init(self, version: int = 5, **fields: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000, **fields
        )
        answer: InitProducerIdResponse = self.broker.ask(request, version)
        return answer

    def take(self, answer: Any) -> None:
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self) -> bytes:
        builder = RecordBatchBuilder(64)
        builder.append(NOW_MS, b"k", b"v")
        return builder.build(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )

    def produce(self, version: int = 13) -> int:
        """Write a record; the error code."""
        request = self.broker.produce_request(self.batch())
        request.transactional_id = self.transactional_id
        call = self.broker.call(request, version)
        self.broker.settle()
        code: int = call.response.responses[0].partition_responses[0].error_code
        self.sequence += code == 0
        return code

    def add_partitions(self, version: int = 3) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=TOPICS,
        )
        answer = self.broker.ask(request, version).results_by_topic_v3_and_below[0]
        code: int = answer.results_by_partition[0].partition_error_code
        return code

    def end(self, *, committed: bool = True, version: int = 5) -> Any:
        answer = self.broker.ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            version,
        )
        if answer.error_code == 0 and version >= 5:
            self.take(answer)
            self.sequence = 0
        return answer


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.create()
    return broker


def test_a_new_producer_writes_and_commits_without_naming_partitions(broker: Broker) -> None:
    producer = Producer(broker)
    first_epoch = producer.epoch

    assert producer.produce() == 0
    log = broker.partition().log
    assert log.last_stable_offset == 0
    assert producer.end().producer_epoch == first_epoch + 1

    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_an_old_producer_names_its_partitions_first(broker: Broker, committed: bool) -> None:
    producer = Producer(broker)

    assert producer.produce(version=11) == InvalidTxnState.code
    assert producer.add_partitions() == 0
    assert producer.produce(version=11) == 0
    assert producer.end(committed=committed, version=4).error_code == 0

    log = broker.partition().log
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)


def test_transactions_follow_each_other(broker: Broker) -> None:
    producer = Producer(broker)
    for _ in range(5):
        assert producer.produce() == 0
        assert producer.end().error_code == 0

    assert broker.partition().log.last_stable_offset == 10
    assert producer.epoch == 5


def test_a_zombie_is_fenced(broker: Broker) -> None:
    zombie = Producer(broker)
    assert zombie.produce() == 0
    # The first attempt aborts the open transaction, the next one takes over.
    heir = Producer.__new__(Producer)
    heir.broker, heir.transactional_id, heir.sequence = broker, "tx", 0
    assert heir.init().error_code != 0
    heir.take(heir.init())

    assert zombie.produce() == InvalidProducerEpoch.code
    assert zombie.end().error_code == ProducerFenced.code
    assert heir.produce() == 0
    assert heir.end().error_code == 0


def test_old_producers_know_fencing_by_another_name(broker: Broker) -> None:
    producer = Producer(broker)
    producer.epoch += 5

    assert producer.end(version=1).error_code == InvalidProducerEpoch.code
    assert producer.add_partitions(version=1) == InvalidProducerEpoch.code
    answer = producer.init(3, producer_id=producer.producer_id, producer_epoch=producer.epoch)
    assert answer.error_code == InvalidProducerEpoch.code
    offsets = AddOffsetsToTxnRequest(
        transactional_id="tx",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )
    assert broker.ask(offsets, 1).error_code == InvalidProducerEpoch.code
    assert broker.ask(offsets, 4).error_code == ProducerFenced.code


def test_records_of_a_transaction_need_its_id(broker: Broker) -> None:
    producer = Producer(broker)

    answer = broker.produce(producer.batch())

    code = answer.responses[0].partition_responses[0].error_code
    assert code == TransactionalIdAuthorizationFailed.code
    producer.transactional_id = "another"
    assert producer.produce() == InvalidProducerIdMapping.code


def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker) -> None:
    producer = Producer(broker)
    producer.produce()

    broker.pass_time(60_000)

    log = broker.partition().log
    assert log.last_stable_offset == log.log_end_offset == 2
    assert producer.produce() == InvalidProducerEpoch.code


def test_offsets_become_part_of_a_transaction(broker: Broker) -> None:
    producer = Producer(broker)
    request = AddOffsetsToTxnRequest(
        transactional_id="tx",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )

    call = broker.call(request)
    broker.settle()

    assert call.response.error_code == 0
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["tx"]))
    (topic,) = described.transaction_states[0].topics
    assert topic.topic == "__consumer_offsets"
    assert producer.end(version=4).error_code == 0


def test_unknown_partitions_are_named(broker: Broker) -> None:
    producer = Producer(broker)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0, 7])],
    )

    (topic,) = broker.ask(request, 3).results_by_topic_v3_and_below

    codes = [each.partition_error_code for each in topic.results_by_partition]
    assert codes == [OperationNotAttempted.code, UnknownTopicOrPartition.code]


@pytest.mark.parametrize(("version", "code"), [(4, InvalidTxnState), (5, TransactionAbortable)])
def test_brokers_verify_for_several_producers(
    broker: Broker, version: int, code: type[Any]
) -> None:
    first, second = Producer(broker, "first"), Producer(broker, "second")
    first.add_partitions()
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            producer_epoch=each.epoch + late,
            verify_only=True,
            topics=TOPICS,
        )
        for each, late in ((first, 0), (second, 0))
    ]

    answer = broker.ask(AddPartitionsToTxnRequest(transactions=asked), version)

    codes = [
        each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    ]
    assert codes == [0, code.code]
    asked[0].producer_epoch += 9
    answer = broker.ask(AddPartitionsToTxnRequest(transactions=asked[:1]), version)
    (result,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert result.partition_error_code == ProducerFenced.code
    assert broker.ask(AddPartitionsToTxnRequest(), version).results_by_transaction == []


def test_transactions_are_described_and_listed(broker: Broker) -> None:
    producer = Producer(broker)
    producer.produce()

    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["tx", "none"]))
    known, unknown = described.transaction_states
    assert (known.transaction_state, known.producer_id) == ("Ongoing", producer.producer_id)
    assert known.topics[0].topic == "orders"
    assert unknown.error_code == TransactionalIdNotFound.code
    assert broker.ask(DescribeTransactionsRequest()).transaction_states == []

    def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = broker.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == ["tx"]
    assert listed(state_filters=["Ongoing"]) == ["tx"]
    assert listed(state_filters=["Empty"]) == []
    assert listed(state_filters=["Nonsense"]) == []
    assert listed(transactional_id_pattern="t.") == ["tx"]
    assert listed(transactional_id_pattern="t") == []
    answer = broker.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code != 0
    answer = broker.ask(ListTransactionsRequest(state_filters=["Nonsense", "Empty"]))
    assert answer.unknown_state_filters == ["Nonsense"]


def marker(producer: Producer, *partitions: int, epoch: int = 0) -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name="orders", partition_indexes=list(partitions))]
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=epoch,
            )
        ]
    )


def test_markers_of_other_coordinators_are_written(broker: Broker) -> None:
    producer = Producer(broker)
    producer.produce()

    answer = broker.ask(marker(producer, 0, 5, epoch=9), 1)

    codes = [each.error_code for each in answer.markers[0].topics[0].partitions]
    assert codes == [0, UnknownTopicOrPartition.code]
    assert broker.partition().log.last_stable_offset == 2
    (stale,) = broker.ask(marker(producer, 0, epoch=3), 1).markers[0].topics[0].partitions
    assert stale.error_code == TransactionCoordinatorFenced.code
    assert broker.ask(WriteTxnMarkersRequest(), 1).markers == []


def test_a_deleted_topic_does_not_keep_a_transaction_open(broker: Broker) -> None:
    from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    producer = Producer(broker)
    producer.produce()
    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
    broker.settle()

    assert producer.end().error_code == 0

    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["tx"]))
    assert described.transaction_states[0].transaction_state == "CompleteCommit"


class OvertakenVerifier:
    """Says yes to everything; the marker of the transaction before comes while it is asked."""

    def __init__(self, broker: Broker, producer: Producer, markers: int) -> None:
        self._broker = broker
        self._producer = producer
        self._markers = markers
        self.asked = 0

    def verify(self, *given: Any, **_: Any) -> None:
        done = given[4]
        self.asked += 1
        if self.asked <= self._markers:
            self._broker.ask(marker(self._producer, 0))
        done({})


@pytest.mark.parametrize(
    ("markers", "asked", "code"), [(1, 2, 0), (2, 3, 0), (3, 3, InvalidTxnState.code)]
)
def test_a_verification_that_a_marker_has_overtaken_is_made_again(
    broker: Broker, markers: int, asked: int, code: int
) -> None:
    producer = Producer(broker)
    verifier = OvertakenVerifier(broker, producer, markers)
    broker.replicas.use_verifier(verifier)

    assert producer.produce() == code
    assert verifier.asked == asked
