"""InitProducerId: who has a transactional id, and who is fenced."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.coordinator.transaction.coordinator import expected_producer
from millstream.coordinator.transaction.metadata import EPOCH_EXHAUSTED, TransactionState
from millstream.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
)
from tests.unit.coordinator.transaction.world import P0, TXN, World


def exhausted() -> tuple[World, ProducerStamp]:
    """A producer whose epochs are used up."""
    world = World()
    producer = world.producer()
    assert world.shard is not None
    last = world.state._replace(producer_epoch=EPOCH_EXHAUSTED)
    world.shard.transactions[TXN] = last
    return world, ProducerStamp(producer.producer_id, EPOCH_EXHAUSTED)


def test_the_first_producer_gets_a_fresh_id_and_epoch_0() -> None:
    world = World()
    assert world.init() == ProducerStamp(1001, 0)
    assert world.state.state is TransactionState.EMPTY


def test_the_next_producer_fences_the_one_before() -> None:
    world = World()
    first = world.producer()
    second = world.producer()
    assert second == ProducerStamp(first.producer_id, 1)
    assert isinstance(world.add(first), ProducerFenced)
    assert world.add(second) is None


def test_the_epoch_survives_a_restart_of_the_coordinator() -> None:
    world = World()
    world.producer()
    world.restart()
    assert world.init() == ProducerStamp(1001, 1)


def test_a_producer_may_ask_for_its_next_epoch_and_ask_again() -> None:
    world = World()
    first = world.producer()
    second = world.init(first)
    assert second == ProducerStamp(first.producer_id, 1)
    assert world.init(first) == second, "the answer was lost"
    assert world.init(ProducerStamp(first.producer_id, 5)) != second


def test_a_producer_of_another_id_or_epoch_is_fenced() -> None:
    world = World()
    producer = world.producer()
    assert isinstance(world.init(ProducerStamp(77, 0)), ProducerFenced)
    stale = ProducerStamp(producer.producer_id, 9)
    assert isinstance(world.init(stale), ProducerFenced)


def test_an_open_transaction_is_aborted_first() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.holds_markers = True
    assert isinstance(world.init(), ConcurrentTransactions)
    (ended,) = world.sent
    assert not ended.is_commit
    assert ended.partitions == {P0}
    assert ended.producer.producer_epoch == producer.producer_epoch + 1
    assert isinstance(world.init(), ConcurrentTransactions), "until the markers are written"
    world.coordinator.markers_written(ended)
    assert world.init() == ProducerStamp(producer.producer_id, 2)


def test_used_up_epochs_lead_to_another_id() -> None:
    world, producer = exhausted()
    assert world.init() == ProducerStamp(1002, 0)
    assert world.state.previous_producer_id == producer.producer_id


def test_a_retry_after_a_change_of_id_is_recognised() -> None:
    world, producer = exhausted()
    rotated = world.init(producer)
    assert rotated == ProducerStamp(1002, 0)
    assert world.init(producer) == rotated


def test_without_a_producer_id_nothing_happens() -> None:
    world = World()
    world.ids.error = CoordinatorLoadInProgress("later")
    assert isinstance(world.init(), CoordinatorLoadInProgress)
    assert world.store.record_count() == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(timeout_ms: int) -> None:
    assert isinstance(World().init(timeout_ms=timeout_ms), InvalidTransactionTimeout)


def test_an_empty_id_is_refused_everywhere() -> None:
    world = World()
    answers: list[object] = []
    coordinator, nobody = world.coordinator, ProducerStamp(1, 0)
    coordinator.init_producer_id("", 1, None, answers.append)
    coordinator.add_partitions("", nobody, [P0], 2, answers.append)
    coordinator.describe("", answers.append)
    assert [type(each) for each in answers] == [InvalidRequest] * 3


def test_id_and_epoch_are_given_together() -> None:
    assert expected_producer(-1, -1) is None
    assert expected_producer(5, 0) == ProducerStamp(5, 0)
    with pytest.raises(InvalidRequest):
        expected_producer(5, -1)


def test_ids_that_nobody_uses_are_forgotten() -> None:
    config = TransactionConfig(id_expiration_ms=1000, id_cleanup_interval_ms=600)
    world = World(config)
    producer = world.producer()
    world.advance(600)
    assert world.shard is not None
    assert TXN in world.shard.transactions
    world.advance(600)
    assert world.shard.transactions == {}
    assert isinstance(world.add(producer), InvalidProducerIdMapping)
    assert world.runtime.next_deadline_ms() is None
    world.restart()
    assert world.shard.transactions == {}


def test_an_id_with_an_open_transaction_is_not_forgotten() -> None:
    config = TransactionConfig(id_expiration_ms=1, id_cleanup_interval_ms=10)
    world = World(config)
    world.add(world.producer())
    world.advance(20)
    assert world.state.state is TransactionState.ONGOING
