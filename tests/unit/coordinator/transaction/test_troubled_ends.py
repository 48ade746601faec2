"""Ends of transactions whose records are late, or could not be written at first."""

from __future__ import annotations

from millstream.coordinator.transaction.ending import EndRequest
from millstream.errors import NotEnoughReplicas, RequestTimedOut
from tests.unit.coordinator.transaction.world import NEW, TXN, World


def in_time(world: World) -> None:
    """Everything that was written is committed after all."""
    world.store.holds_commits = False
    world.store.committed[0] = world.store.bounds(0, 0).end_offset


def test_an_end_that_is_committed_too_late_is_carried_out_all_the_same() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.holds_commits = True
    answers: list[object] = []
    world.coordinator.end(TXN, EndRequest(producer, True, NEW), answers.append)
    world.store.commit(RequestTimedOut())
    world.advance(1)
    assert world.sent == [], "it may still be lost"
    in_time(world)
    world.advance(500)
    assert [each.is_commit for each in world.sent] == [True]
    assert world.title == "CompleteCommit"


def test_a_timeout_that_is_committed_too_late_is_carried_out_all_the_same() -> None:
    world = World()
    world.add(world.producer())
    world.store.holds_commits = True
    world.advance(60_000)
    world.store.commit(RequestTimedOut())
    in_time(world)
    world.advance(1_000)
    assert world.title == "CompleteAbort"


def test_an_end_that_is_not_written_is_not_carried_out() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.failure = NotEnoughReplicas()
    world.end(producer)
    world.store.failure = None
    world.advance(1_000)
    assert world.sent == []
    assert world.title == "Ongoing"


def test_a_completion_that_could_not_be_written_is_written_later() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.holds_markers = True
    world.end(producer)
    world.store.failure = NotEnoughReplicas()
    world.coordinator.markers_written(world.sent[-1])
    assert world.title == "PrepareCommit"
    world.store.failure = None
    world.holds_markers = False
    world.advance(1)
    assert world.title == "CompleteCommit"


def test_the_next_coordinator_carries_out_no_end_that_may_still_be_lost() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.holds_commits = True
    world.coordinator.end(TXN, EndRequest(producer, True, NEW), lambda _: None)
    world.restart()
    assert world.sent == []
    in_time(world)
    world.advance(500)
    assert world.title == "CompleteCommit"
