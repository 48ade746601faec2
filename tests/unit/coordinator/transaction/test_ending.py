"""EndTxn, timeouts and markers: how transactions end, for old and for new producers."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.transaction.coordinator import TransactionFilter
from millstream.coordinator.transaction.ending import EndRequest
from millstream.coordinator.transaction.metadata import (
    EPOCH_EXHAUSTED,
    TransactionMetadata,
    TransactionState,
)
from millstream.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    RequestTimedOut,
    TransactionalIdNotFound,
)
from tests.unit.coordinator.transaction.world import NEW, OLD, P0, P1, TXN, World

BOTH = pytest.mark.parametrize("version", [OLD, NEW])


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_reaches_every_partition(version: int, is_commit: bool) -> None:
    world = World()
    producer = world.producer()
    world.add(producer, P0, version=version)
    world.add(producer, P1, version=version)
    assert isinstance(world.end(producer, is_commit=is_commit, version=version), ProducerStamp)
    (ended,) = world.sent
    assert ended.partitions == {P0, P1}
    assert ended.is_commit is is_commit
    assert ended.coordinator_epoch == world.epoch
    complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert world.state.state is complete
    assert world.state.partitions == frozenset()


def test_an_old_producer_keeps_its_epoch() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, version=OLD)
    assert world.end(producer, version=OLD) == producer
    assert world.add(producer, version=OLD) is None


def test_a_new_producer_gets_an_epoch_for_each_transaction() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    after = world.end(producer)
    assert after == ProducerStamp(producer.producer_id, producer.producer_epoch + 1)
    (ended,) = world.sent
    assert ended.producer == after, "the marker has the new epoch and fences late records"
    assert isinstance(world.add(producer), ProducerFenced)


@BOTH
def test_an_end_that_is_asked_for_again_is_answered_the_same(version: int) -> None:
    world = World()
    producer = world.producer()
    world.add(producer, version=version)
    first = world.end(producer, version=version)
    assert world.end(producer, version=version) == first
    assert len(world.sent) == 1


@BOTH
def test_an_end_cannot_change_its_mind(version: int) -> None:
    world = World()
    producer = world.producer()
    world.add(producer, version=version)
    world.end(producer, version=version)
    answer = world.end(producer, is_commit=False, version=version)
    assert isinstance(answer, InvalidTxnState)
    assert world.state.state is TransactionState.COMPLETE_COMMIT


@BOTH
def test_while_markers_are_on_their_way_the_producer_waits(version: int) -> None:
    world = World()
    world.holds_markers = True
    producer = world.producer()
    world.add(producer, version=version)
    after = world.end(producer, version=version)
    assert isinstance(after, ProducerStamp), "the decision is safe, the markers follow"
    assert isinstance(world.end(producer, version=version), ConcurrentTransactions)
    assert isinstance(world.end(producer, is_commit=False, version=version), InvalidTxnState)
    assert isinstance(world.add(after, version=version), ConcurrentTransactions)
    world.coordinator.markers_written(world.sent[0])
    assert world.add(after, version=version) is None


@BOTH
def test_nothing_can_be_committed_without_a_transaction(version: int) -> None:
    world = World()
    producer = world.producer()
    assert isinstance(world.end(producer, version=version), InvalidTxnState)


def test_an_old_producer_cannot_abort_nothing() -> None:
    world = World()
    producer = world.producer()
    assert isinstance(world.end(producer, is_commit=False, version=OLD), InvalidTxnState)


def test_an_abort_of_nothing_fences_what_may_be_on_its_way() -> None:
    world = World()
    producer = world.producer()
    after = world.end(producer, is_commit=False)
    assert after == ProducerStamp(producer.producer_id, 1)
    (ended,) = world.sent
    assert ended.partitions == frozenset()
    assert world.state.state is TransactionState.COMPLETE_ABORT
    assert isinstance(after, ProducerStamp)
    again = world.end(after, is_commit=False)
    assert again == ProducerStamp(producer.producer_id, 2)


@BOTH
def test_others_cannot_end_it(version: int) -> None:
    world = World()
    producer = world.producer()
    world.add(producer, version=version)
    stranger = ProducerStamp(5, 0)
    assert isinstance(world.end(stranger, version=version), InvalidProducerIdMapping)
    zombie = ProducerStamp(producer.producer_id, 7)
    assert isinstance(world.end(zombie, version=version), ProducerFenced)
    assert world.state.state is TransactionState.ONGOING


def test_nobody_ends_what_does_not_exist() -> None:
    assert isinstance(World().end(ProducerStamp(5, 0)), InvalidProducerIdMapping)


def test_used_up_epochs_end_with_another_id() -> None:
    world = World()
    producer = world.producer()
    assert world.shard is not None
    last = world.state._replace(producer_epoch=EPOCH_EXHAUSTED)
    world.shard.transactions[TXN] = last
    producer = ProducerStamp(producer.producer_id, EPOCH_EXHAUSTED)
    world.add(producer)
    after = world.end(producer)
    assert after == ProducerStamp(1002, 0)
    (ended,) = world.sent
    assert ended.producer == ProducerStamp(producer.producer_id, EPOCH_EXHAUSTED + 1)
    assert world.end(producer) == after, "the answer was lost"
    assert world.state.previous_producer_id == producer.producer_id


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    answer = world.init(timeout_ms=1000)
    assert isinstance(answer, ProducerStamp)
    world.add(answer)
    world.advance(999)
    assert world.sent == []
    world.advance(1)
    (ended,) = world.sent
    assert not ended.is_commit
    assert world.state.state is TransactionState.COMPLETE_ABORT
    assert isinstance(world.add(answer), ProducerFenced)
    assert isinstance(world.end(answer), ApiError)


def test_the_timeout_counts_from_the_beginning_of_each_transaction() -> None:
    world = World()
    producer = world.init(timeout_ms=1000)
    assert isinstance(producer, ProducerStamp)
    world.add(producer, P0)
    world.advance(600)
    world.add(producer, P1)
    producer = world.end(producer)
    assert isinstance(producer, ProducerStamp)
    world.add(producer)
    world.advance(600)
    assert world.title == "Ongoing"
    world.advance(400)
    assert world.title == "CompleteAbort"


def test_a_timeout_is_watched_by_the_next_coordinator_too() -> None:
    world = World()
    producer = world.init(timeout_ms=1000)
    assert isinstance(producer, ProducerStamp)
    world.add(producer)
    world.clock.advance(700)
    world.restart()
    world.advance(299)
    assert world.title == "Ongoing"
    world.advance(1)
    assert world.title == "CompleteAbort"


def test_a_decided_end_is_carried_out_by_the_next_coordinator() -> None:
    world = World()
    world.holds_markers = True
    producer = world.producer()
    world.add(producer, P0, P1)
    world.end(producer)
    world.restart()
    assert world.forgotten == [0]
    first, second = world.sent
    assert second._replace(coordinator_epoch=first.coordinator_epoch) == first
    assert second.coordinator_epoch == first.coordinator_epoch + 1
    world.coordinator.markers_written(second)
    assert world.state.state is TransactionState.COMPLETE_COMMIT


def test_markers_of_an_older_end_complete_nothing() -> None:
    world = World()
    world.holds_markers = True
    producer = world.producer()
    world.add(producer)
    world.end(producer)
    (ended,) = world.sent
    world.coordinator.markers_written(ended)
    written = world.store.record_count()
    world.coordinator.markers_written(ended)
    assert world.store.record_count() == written


def test_no_marker_leaves_before_the_decision_is_committed() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.holds_commits = True
    answers: list[object] = []
    world.coordinator.end(TXN, EndRequest(producer, True, NEW), answers.append)
    assert world.sent == []
    assert answers == []
    world.store.commit()
    assert len(world.sent) == 1


def test_a_decision_that_was_not_committed_sends_nothing() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.failure = RequestTimedOut("slow")
    assert isinstance(world.end(producer), ApiError)
    assert world.sent == []
    world.store.failure = None
    assert isinstance(world.end(producer), ProducerStamp)


def test_a_coordinator_that_moved_says_so() -> None:
    world = World()
    producer = world.producer()
    world.runtime.resigned(0)
    assert isinstance(world.end(producer), NotCoordinator)


def test_partitions_are_verified_against_the_open_transaction() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, P0, version=OLD)
    answers: list[object] = []
    world.coordinator.missing_partitions(TXN, producer, [P0, P1], answers.append)
    assert answers == [{P1}]
    stale = ProducerStamp(producer.producer_id, 9)
    world.coordinator.missing_partitions(TXN, stale, [P0], answers.append)
    assert isinstance(answers[-1], ProducerFenced)


def test_partitions_that_are_there_are_not_written_again() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, P0)
    written = world.store.record_count()
    assert world.add(producer, P0) is None
    assert world.store.record_count() == written


def test_transactions_are_described_and_listed() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    answers: list[object] = []
    world.coordinator.describe(TXN, answers.append)
    world.coordinator.describe("other", answers.append)
    described, unknown = answers
    assert isinstance(described, TransactionMetadata)
    assert described.state.title == "Ongoing"
    assert isinstance(unknown, TransactionalIdNotFound)
    world.clock.advance(100)

    def ids(**wanted: object) -> list[str]:
        found: list[list[TransactionMetadata] | ApiError] = []
        defaults: dict[str, object] = {
            "states": frozenset(),
            "producer_ids": frozenset(),
            "duration_min_ms": -1,
            "matches_id": lambda text: True,
        }
        wanted_filter = TransactionFilter(**{**defaults, **wanted})  # type: ignore[arg-type]
        world.coordinator.list(wanted_filter, found.append)
        (listed,) = found
        assert isinstance(listed, list)
        return [each.transactional_id for each in listed]

    assert ids() == [TXN]
    assert ids(states=frozenset({"Empty"})) == []
    assert ids(states=frozenset({"Ongoing"})) == [TXN]
    assert ids(producer_ids=frozenset({5})) == []
    assert ids(duration_min_ms=99) == [TXN]
    assert ids(duration_min_ms=100) == []
    assert ids(matches_id=lambda text: text == "x") == []
    world.runtime.elected(0, world.epoch + 1)
    found: list[object] = []
    world.coordinator.list(
        TransactionFilter(frozenset(), frozenset(), -1, lambda _: True), found.append
    )
    assert isinstance(found[0], ApiError)
