"""The queue of markers: who must still hear of an end, and when to tell again."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.transaction.markers import RETRY_MAX_MS, RETRY_MS, MarkerQueue
from millstream.coordinator.transaction.ports import EndedTransaction
from millstream.errors import (
    ApiError,
    InvalidProducerEpoch,
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionCoordinatorFenced,
    UnsupportedForMessageFormat,
)
from tests.unit.coordinator.transaction.world import NEW, P0, P1, TXN

ENDED = EndedTransaction(TXN, ProducerStamp(7, 1), 3, 5, frozenset({P0, P1}), True, NEW)


def test_an_end_is_told_at_once_and_is_complete_when_all_know() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 100)
    assert queue.next_deadline_ms() == 100
    (due,) = queue.take_due(100)
    assert due.partitions == (P0, P1)
    assert queue.next_deadline_ms() is None, "it is on its way"
    assert queue.written(due, [(P0, None), (P1, None)], 100)
    assert len(queue) == 0


def test_who_could_not_be_told_is_told_again_with_growing_pauses() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    (due,) = queue.take_due(0)
    assert not queue.written(due, [(P0, None), (P1, NotLeaderOrFollower())], 0)
    assert queue.take_due(RETRY_MS - 1) == []
    now_ms, waits = 0, []
    for _ in range(8):
        deadline_ms = queue.next_deadline_ms()
        assert deadline_ms is not None
        waits.append(deadline_ms - now_ms)
        now_ms = deadline_ms
        (due,) = queue.take_due(now_ms)
        assert due.partitions == (P1,)
        assert not queue.written(due, [(P1, NotLeaderOrFollower())], now_ms)
    assert waits[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert waits[-1] == RETRY_MAX_MS


@pytest.mark.parametrize(
    "error", [InvalidProducerEpoch(), ProducerFenced(), TransactionCoordinatorFenced()]
)
def test_an_end_that_somebody_newer_has_taken_over_is_dropped(error: ApiError) -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    (due,) = queue.take_due(0)
    assert not queue.written(due, [(P0, error)], 0)
    assert len(queue) == 0


def test_only_the_ends_of_one_coordinator_are_forgotten() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    other = ENDED._replace(transactional_id="other", coordinator_partition=4)
    queue.add(other, 0)
    queue.forget(3)
    assert [each.ended for each in queue.take_due(0)] == [other]


def test_what_became_of_an_earlier_attempt_does_not_end_the_next_transaction() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    (early,) = queue.take_due(0)
    # An old producer keeps its epoch: its next transaction looks the same.
    queue.add(ENDED, 5)
    (late,) = queue.take_due(5)
    assert not queue.written(early, [(P0, None), (P1, None)], 6)
    assert len(queue) == 1
    assert queue.written(late, [(P0, None), (P1, None)], 7)


def test_a_leader_that_does_not_answer_does_not_hold_up_the_others() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    (due,) = queue.take_due(0)
    assert not queue.written(due, [(P0, NotLeaderOrFollower())], 0)
    (again,) = queue.take_due(RETRY_MS)
    assert again.partitions == (P0,), "the marker of the other is still on its way"
    assert not queue.written(again, [(P0, None)], RETRY_MS)
    assert queue.next_deadline_ms() is None
    assert queue.written(due, [(P1, None)], 500)


def test_a_log_that_cannot_have_markers_needs_none() -> None:
    queue = MarkerQueue()
    queue.add(ENDED, 0)
    (due,) = queue.take_due(0)

    assert queue.written(due, [(P0, None), (P1, UnsupportedForMessageFormat())], 0)
    assert not queue.is_current(due)
