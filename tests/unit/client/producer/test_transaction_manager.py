"""The states of a transaction, and which errors end what, in virtual time and both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
from millstream.client.producer.transactions.state import State
from millstream.errors import (
    ConcurrentTransactions,
    FatalProducerError,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from millstream.types import TopicPartition
from tests.simulation.producer.cluster import TOPIC
from tests.unit.client.producer.scripted import Desk, ScriptedCluster

if TYPE_CHECKING:
    from millstream.client.producer.transactions.manager import TransactionManager

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5)}
GROUP = ConsumerGroupMetadata("group", 3, "member")


class Transactions(Desk):
    """A transactional producer that is ready."""

    def __init__(self, version: int, **settings: Any) -> None:
        cluster = ScriptedCluster(2)
        cluster.features = version == 2
        super().__init__(cluster, transactional_id="id", **settings)
        manager = self.core.transactions
        assert manager is not None
        self.manager: TransactionManager = manager
        self.finish(self.call(manager.initialize))

    def call(self, operation: Any) -> Any:
        """Ask on the I/O thread, which is ours."""
        return operation(self.clock.monotonic_ms())

    def begin(self) -> None:
        """A transaction begins."""
        self.manager.begin()

    def commit(self) -> None:
        """And ends well, or raises."""
        self.finish(self.call(self.manager.commit))

    def abort(self) -> None:
        """And is undone."""
        self.finish(self.call(self.manager.abort))

    def send_offsets(self) -> None:
        """Offsets of a group."""
        now_ms = self.clock.monotonic_ms()
        self.finish(self.manager.send_offsets(OFFSETS, GROUP, now_ms))


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    """Of transactions, as the cluster has finalized it."""
    return int(request.param)


def test_partitions_and_groups_are_added_by_us_only_in_version_1(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send(b"0", 0)
    desk.send(b"1", 1)
    desk.send_offsets()
    desk.commit()

    asked = {name for name, _ in desk.cluster.asked}
    assert ("AddPartitionsToTxn" in asked) is ("AddOffsetsToTxn" in asked) is (version == 1)
    assert desk.cluster.version("EndTxn") == (4 if version == 1 else 5)
    assert desk.cluster.version("TxnOffsetCommit") == (4 if version == 1 else 5)
    assert desk.cluster.version("Produce") == (11 if version == 1 else 13)
    assert desk.manager.state is State.READY


def test_the_epoch_rises_with_each_transaction_of_version_2_only(version: int) -> None:
    desk = Transactions(version)
    for _ in range(3):
        desk.begin()
        desk.send()
        desk.commit()

    assert desk.cluster.epoch == (0 if version == 1 else 3)
    assert len(desk.cluster.partitions[0].values) == 3


def test_nothing_is_sent_outside_of_a_transaction(version: int) -> None:
    desk = Transactions(version)
    with pytest.raises(InvalidTxnState, match="begin a transaction"):
        desk.manager.require_open()

    waiting = desk.append()
    desk.pass_ms(1000)
    assert not waiting.done()
    desk.begin()
    desk.turn(waiting.done)
    desk.commit()


def test_an_empty_transaction_asks_nobody(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.commit()
    desk.begin()
    desk.abort()

    assert desk.cluster.count("EndTxn") == 0


def test_being_initialized_twice_is_refused_and_waiting_again_is_not(version: int) -> None:
    desk = Transactions(version)

    with pytest.raises(InvalidTxnState, match="initialized once"):
        desk.call(desk.manager.initialize)
    desk.begin()
    desk.send()
    first = desk.call(desk.manager.commit)
    assert desk.call(desk.manager.commit) is first
    desk.finish(first)
    desk.begin()
    desk.send()
    second = desk.call(desk.manager.abort)
    assert desk.call(desk.manager.abort) is second
    desk.finish(second)


def test_no_offsets_are_no_request(version: int) -> None:
    desk = Transactions(version)
    desk.begin()

    assert desk.manager.send_offsets({}, GROUP, 0).done()


@pytest.mark.parametrize(
    "error", [TransactionalIdAuthorizationFailed, ProducerFenced, InvalidProducerEpoch]
)
def test_who_may_not_begin_is_done_for(error: type) -> None:
    cluster = ScriptedCluster()
    cluster.refuse("InitProducerId", error)
    desk = Desk(cluster, transactional_id="id")
    manager = desk.core.transactions
    assert manager is not None

    with pytest.raises((TransactionalIdAuthorizationFailed, ProducerFenced)):
        desk.finish(manager.initialize(desk.clock.monotonic_ms()))
    assert manager.state is State.FATAL
    with pytest.raises((TransactionalIdAuthorizationFailed, ProducerFenced)):
        manager.begin()


def test_another_transaction_of_the_same_id_is_waited_for(version: int) -> None:
    desk = Transactions(version)
    desk.cluster.refuse("EndTxn", ConcurrentTransactions, ConcurrentTransactions)
    desk.begin()
    desk.send()

    desk.commit()

    assert desk.cluster.count("EndTxn") == 3


@pytest.mark.parametrize("error", [ProducerFenced, InvalidProducerEpoch, InvalidTxnState])
def test_a_refused_commit_that_is_final_ends_the_producer(version: int, error: type) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send()
    desk.cluster.refuse("EndTxn", error)

    with pytest.raises((ProducerFenced, InvalidTxnState)):
        desk.commit()
    with pytest.raises((ProducerFenced, InvalidTxnState)):
        desk.append()
    assert desk.manager.state is State.FATAL


def test_a_commit_that_must_be_aborted_leaves_the_producer_usable(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send()
    desk.cluster.refuse("EndTxn", TransactionAbortable)

    with pytest.raises(TransactionAborted):
        desk.commit()
    desk.abort()
    desk.begin()
    desk.send()
    desk.commit()


def test_an_abort_that_fails_for_good_is_the_end(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send()
    desk.cluster.refuse("EndTxn", TransactionAbortable)

    with pytest.raises(FatalProducerError):
        desk.abort()


def test_lost_numbers_need_a_new_epoch_after_the_abort(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send()
    desk.cluster.refuse("Produce", OutOfOrderSequenceNumber)
    lost = desk.send()

    assert isinstance(lost.exception(0), OutOfOrderSequenceNumber)
    assert desk.manager.state is State.ABORTABLE
    with pytest.raises(TransactionAborted):
        desk.manager.require_open()
    desk.abort()

    assert desk.cluster.epoch == 1, "by InitProducerId in version 1, by EndTxn in version 2"
    desk.begin()
    assert desk.send().result(0).offset == 1
    desk.commit()


def test_a_broker_that_cannot_raise_the_epoch_ends_the_producer() -> None:
    desk = Transactions(1)
    node_id = desk.core.runtime.router.coordinator("transaction", "id")
    assert node_id is not None
    desk.begin()
    desk.send()
    desk.cluster.refuse("Produce", OutOfOrderSequenceNumber)
    desk.send()
    desk.core.runtime.network.version_of = lambda *_: 2  # type: ignore[method-assign]

    with pytest.raises(FatalProducerError, match="too old"):
        desk.abort()


def test_partitions_that_may_not_be_added_abort_the_transaction() -> None:
    desk = Transactions(1)
    desk.begin()
    desk.cluster.refuse("AddPartitionsToTxn", UnknownTopicOrPartition, TopicAuthorizationFailed)

    lost = desk.send()

    assert isinstance(lost.exception(0), TransactionAborted)
    assert isinstance(desk.manager.error, TopicAuthorizationFailed)
    desk.abort()
    desk.begin()
    desk.send()
    desk.commit()


def test_a_lost_mapping_is_repaired_by_a_new_epoch() -> None:
    desk = Transactions(1)
    desk.begin()
    desk.cluster.refuse("AddPartitionsToTxn", InvalidProducerIdMapping)
    desk.send()
    desk.abort()

    assert desk.cluster.epoch == 1


@pytest.mark.parametrize("error", [IllegalGeneration, GroupAuthorizationFailed])
def test_offsets_that_are_refused_abort_the_transaction(version: int, error: type) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.cluster.refuse("TxnOffsetCommit", error)

    with pytest.raises(error):
        desk.send_offsets()
    with pytest.raises(TransactionAborted, match="must be aborted"):
        desk.commit()
    desk.abort()


def test_an_abort_ends_what_waits(version: int) -> None:
    desk = Transactions(version, linger_ms=50)
    desk.begin()
    waiting = desk.append()
    desk.cluster.refuse("TxnOffsetCommit", *[UnknownTopicOrPartition] * 50)
    offsets = desk.manager.send_offsets(OFFSETS, GROUP, desk.clock.monotonic_ms())
    desk.pass_ms(10)

    desk.abort()

    assert isinstance(waiting.exception(0), TransactionAborted)
    with pytest.raises(TransactionAborted):
        offsets.result(0)


def test_a_record_that_timed_out_aborts_and_needs_a_new_epoch() -> None:
    desk = Transactions(1, delivery_timeout_ms=1000, request_timeout_ms=900)
    desk.begin()
    desk.send()
    desk.cluster.down.add(1)
    desk.selector.at(desk.clock.monotonic_ms() + 2000, desk.cluster.down.clear)
    desk.append()
    with pytest.raises(TransactionAborted):
        desk.commit()

    desk.abort()

    desk.begin()
    desk.send(b"after")
    desk.commit()
    assert desk.cluster.partitions[0].values[-1] == b"after"


def test_closing_the_client_ends_a_commit_that_waits(version: int) -> None:
    desk = Transactions(version)
    desk.begin()
    desk.send()
    waiter = desk.call(desk.manager.commit)

    desk.core.runtime.run_once(0)
    desk.core.runtime.close()

    assert waiter.done()
    assert TOPIC
