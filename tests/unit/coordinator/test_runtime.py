"""The runtime: decisions are written, replayed, and answered when they are safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.coordinator.decision import Decision, Moment, ProducerStamp
from millstream.coordinator.runtime import RETRY_MS
from millstream.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
)
from tests.unit.coordinator.counting import World, asked_of, only_error, put, record

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from tests.unit.coordinator.counting import Counts


def test_a_decision_is_written_replayed_and_answered() -> None:
    world = World()
    assert world.write(put("a", 1)) == ["a=1"]
    assert world.shard.values == {"a": 1}
    assert world.read("a") == [1]
    assert world.store.record_count() == 1


def test_an_answer_waits_until_its_records_are_committed() -> None:
    world = World()
    world.store.holds_commits = True
    answers = world.write(put("a", 1))
    assert answers == []
    assert world.shard.values == {"a": 1}, "the next decision sees it already"
    world.store.commit()
    assert answers == ["a=1"]


def test_a_read_waits_for_the_writes_it_has_seen() -> None:
    world = World()
    world.store.holds_commits = True
    world.write(put("a", 1))
    answers = world.read("a")
    assert answers == []
    world.store.commit()
    assert answers == [1]


def test_a_write_that_is_not_committed_in_time_fails_it_and_its_readers() -> None:
    world = World()
    world.store.holds_commits = True
    answers, reads = world.write(put("a", 1)), world.read("a")
    world.store.commit(RequestTimedOut("too slow"))
    assert only_error(answers) is CoordinatorNotAvailable
    assert only_error(reads) is CoordinatorNotAvailable


def test_nothing_uncommitted_is_shown_after_a_write_timed_out() -> None:
    world = World()
    world.store.holds_commits = True
    world.write(put("a", 1))
    world.store.commit(RequestTimedOut("too slow"))
    assert only_error(world.read("a")) is CoordinatorNotAvailable
    world.store.committed[0] = 1
    assert world.read("a") == [1]


def test_a_refusal_writes_nothing() -> None:
    world = World()

    def refuse(shard: Counts, now: Moment) -> Decision[str]:
        raise InvalidRequest("no")

    assert only_error(world.write(refuse)) is InvalidRequest
    assert world.store.record_count() == 0


def test_a_failure_of_the_state_machine_is_an_answer_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    def fail(shard: Counts, now: Moment) -> Decision[str]:
        raise ZeroDivisionError

    assert only_error(world.write(fail)) is UnknownServerError
    assert "could not decide" in caplog.text


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotLeaderOrFollower("gone"), NotCoordinator),
        (KafkaStorageError("disk"), NotCoordinator),
        (RequestTimedOut("slow"), CoordinatorNotAvailable),
        (MessageTooLarge("large"), UnknownServerError),
        (InvalidRequest("other"), InvalidRequest),
    ],
)
def test_a_failed_append_is_told_in_words_that_clients_know(
    failure: ApiError, told: type[ApiError]
) -> None:
    world = World()
    world.store.failure = failure
    seen: list[ApiError | None] = []
    answers = world.write(
        lambda shard, now: Decision("a=1", [record("a", 1)], on_committed=seen.append)
    )
    assert only_error(answers) is told
    assert [type(each) for each in seen] == [told]
    assert world.shard.values == {}


def test_state_that_is_changed_already_is_not_replayed() -> None:
    world = World()
    answers = world.write(lambda shard, now: Decision("a=1", [record("a", 1)], is_replayed=False))
    assert answers == ["a=1"]
    assert world.shard.values == {}


def test_records_that_need_not_stay_together_are_split() -> None:
    world = World()
    world.store.size_max = 500
    many = [record(f"name-{number}", number) for number in range(50)]
    assert world.write(lambda shard, now: Decision("done", many, is_atomic=False)) == ["done"]
    assert len(world.store.batches[0]) > 1
    assert len(world.shard.values) == 50
    assert world.write(lambda shard, now: Decision("done", many)) == ["done"]
    assert world.store.record_count() == 100


def test_a_timer_decides_and_is_armed() -> None:
    world = World()

    def decide(shard: Counts, now: Moment) -> Decision[str]:
        shard.timers.set("later", now.now_ms + 10, lambda now: Decision(None, [record("timed", 1)]))
        return Decision("ok")

    world.write(decide)
    deadline_ms = world.clock.monotonic_ms() + 10
    assert world.armed == [deadline_ms]
    assert world.runtime.next_deadline_ms() == deadline_ms
    world.runtime.tick()
    assert world.shard.values == {}
    world.clock.advance(10)
    world.runtime.tick()
    assert world.shard.values == {"timed": 1}
    assert world.runtime.next_deadline_ms() is None


def test_a_timer_whose_records_cannot_be_written_fires_again() -> None:
    world = World()
    action = lambda now: Decision(None, [record("timed", 1)])  # noqa: E731
    world.shard.timers.set("later", 0, action)
    world.store.failure = RequestTimedOut("slow")
    world.runtime.tick()
    assert world.shard.values == {}
    world.store.failure = None
    world.clock.advance(RETRY_MS)
    world.runtime.tick()
    assert world.shard.values == {"timed": 1}


def test_all_shards_are_asked_or_none() -> None:
    world = World()
    world.runtime.elected(1, 1)
    answers: list[object] = []
    world.runtime.read_all(lambda shard, _: len(shard.values), answers.append)
    assert answers == [[0, 0]]
    world.runtime.write_all(lambda shard, now: Decision(None, [record("everywhere", 1)]))
    assert [shard.values for shard in world.shards] == [{"everywhere": 1}] * 2
    world.runtime.elected(1, 2)
    world.runtime.read_all(lambda shard, _: 0, answers.append)
    assert isinstance(answers[-1], CoordinatorLoadInProgress)
    nobody = World(is_elected=False)
    assert asked_of(nobody) == []


def test_a_marker_needs_a_coordinator_and_a_log() -> None:
    world = World()
    answers: list[ApiError | None] = []

    def end(partition: int) -> None:
        world.runtime.end_transaction(
            partition,
            ProducerStamp(1, 0),
            coordinator_epoch=1,
            transaction_version=2,
            is_committed=False,
            done=answers.append,
        )

    end(5)
    assert isinstance(answers[-1], NotCoordinator)
    world.store.failure = KafkaStorageError("disk")
    end(0)
    assert isinstance(answers[-1], KafkaStorageError)
    world.store.failure = None
    end(0)
    assert answers[-1] is None
    assert world.shard.ends == [(ProducerStamp(1, 0), False)]
