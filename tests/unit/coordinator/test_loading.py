"""Partitions are loaded from their logs, and left when another broker leads them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.coordinator.decision import Decision, ProducerStamp
from millstream.coordinator.loading import PROGRESS_MS
from millstream.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotCoordinator,
)
from tests.unit.coordinator.counting import World, only_error, put, record

if TYPE_CHECKING:
    import pytest

    from millstream.errors import ApiError


def test_a_log_is_loaded_in_steps_and_requests_are_told_to_wait() -> None:
    world = World()
    for number in range(3000):
        world.write(put(f"name-{number}", number))
    stamp = ProducerStamp(7, 0)
    world.runtime.write("key", put("in-transaction", 1), lambda _: None, stamp=stamp)
    ended: list[ApiError | None] = []
    world.runtime.end_transaction(
        0, stamp, coordinator_epoch=1, transaction_version=2, is_committed=True, done=ended.append
    )
    assert ended == [None]
    before = world.shard
    world.runtime.elected(0, 2)
    assert isinstance(before.unloaded_with, NotCoordinator)
    assert only_error(world.read("name-1")) is CoordinatorLoadInProgress
    steps = 0
    while world.deferred:
        world.deferred.popleft()()
        steps += 1
    assert steps > 1
    assert world.shard.values == before.values
    assert world.shard.ends == [(stamp, True)]
    assert world.shard.stamps[-1] == stamp
    assert world.shard.loaded_at is not None
    assert world.runtime.active_partitions == [0]


def test_tombstones_are_loaded() -> None:
    world = World()
    world.write(put("a", 1))
    world.write(lambda shard, now: Decision("", [record("a", None)]))
    world.runtime.elected(0, 2)
    world.settle()
    assert world.shard.values == {}


def test_a_log_that_cannot_be_read_is_not_coordinated() -> None:
    world = World()
    world.write(put("a", 1))
    world.store.read_failure = KafkaStorageError("disk")
    world.runtime.elected(0, 2)
    assert only_error(world.read("a")) is CoordinatorNotAvailable
    world.store.read_failure = None
    world.runtime.elected(0, 3)
    world.store.read_failure = KafkaStorageError("disk")
    world.settle()
    assert only_error(world.read("a")) is CoordinatorNotAvailable


def test_a_log_that_can_be_read_at_last_is_coordinated_in_the_same_epoch() -> None:
    world = World()
    world.write(put("a", 1))
    world.store.read_failure = KafkaStorageError("disk")
    world.runtime.elected(0, 2)
    world.store.read_failure = None

    world.runtime.elected(0, 2)
    world.settle()
    loaded = world.shard
    world.runtime.elected(0, 2)

    assert world.shard is loaded, "once is enough"
    assert world.shard.values == {"a": 1}


def test_a_record_that_does_not_fit_makes_the_state_be_loaded_anew() -> None:
    world = World()
    world.write(put("a", 1))
    world.shard.breaks_on = 2
    assert only_error(world.write(put("b", 2))) is CoordinatorNotAvailable
    world.settle()
    assert world.shard.values == {"a": 1, "b": 2}
    assert len(world.shards) == 2


def test_who_does_not_lead_does_not_coordinate() -> None:
    world = World(is_elected=False)
    assert only_error(world.read("a")) is NotCoordinator
    world.partition_count = None
    assert only_error(world.read("a")) is CoordinatorNotAvailable


def test_an_old_epoch_changes_nothing() -> None:
    world = World()
    world.runtime.elected(0, 3)
    world.settle()
    world.runtime.elected(0, 2)
    world.runtime.resigned(0, 3)
    assert world.runtime.active_partitions == [0]
    world.runtime.resigned(0, 4)
    assert world.runtime.active_partitions == []


def test_who_waits_is_told_that_the_coordinator_has_moved() -> None:
    world = World()
    world.store.holds_commits = True
    answers = world.write(put("a", 1))
    world.runtime.close()
    assert only_error(answers) is NotCoordinator
    world.store.commit()
    assert len(answers) == 1


def test_loading_stops_when_the_leadership_does() -> None:
    world = World()
    world.write(put("a", 1))
    world.runtime.elected(0, 2)
    world.runtime.resigned(0)
    world.settle()
    assert world.shard.loaded_at is None


def test_a_long_load_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.coordinator")
    world = World()
    for number in range(4000):
        world.write(put(f"name-{number}", number))
    world.runtime.elected(0, 2)
    while world.deferred:
        world.deferred.popleft()()
        world.clock.advance(PROGRESS_MS)
    assert "is being loaded: offset" in caplog.text
    assert world.runtime.active_partitions == [0]


def test_a_record_that_cannot_be_replayed_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.write(put("a", 1))
    world.breaks_on = 1
    world.runtime.elected(0, 2)
    world.settle()
    assert only_error(world.read("a")) is CoordinatorNotAvailable
    assert "cannot be replayed" in caplog.text
    assert "restore the partition's directory from a backup" in caplog.text
