"""Decisions that may wait are written together, and fail or succeed as if they had been alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.coordinator import shared_batch
from millstream.coordinator.decision import Decision, Moment, ProducerStamp
from millstream.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    NotEnoughReplicas,
    RequestTimedOut,
    UnknownServerError,
)
from tests.unit.coordinator.counting import World, only_error, put, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError
    from tests.unit.coordinator.counting import Counts


def waiting(name: str, number: int) -> Callable[[Counts, Moment], Decision[str]]:
    return lambda shard, now: Decision(f"{name}={number}", [record(name, number)], may_wait=True)


def gather(world: World, decide: Callable[[Counts, Moment], Decision[str]]) -> list[object]:
    answers: list[object] = []
    world.runtime.gather("key", decide, answers.append)
    return answers


def test_decisions_of_one_turn_are_one_batch_in_their_order() -> None:
    world = World()
    told: list[str | ApiError] = []
    for name, number in (("a", 1), ("b", 2), ("a", 3)):
        world.runtime.gather("key", waiting(name, number), told.append)
    assert told == []
    assert world.store.batches == {}

    world.settle()

    assert told == ["a=1", "b=2", "a=3"]
    assert world.shard.values == {"a": 3, "b": 2}
    assert len(world.store.batches[0]) == 1
    assert world.store.record_count() == 3


def test_a_turn_is_ended_once_and_the_next_decision_begins_another() -> None:
    world = World()
    gather(world, waiting("a", 1))
    gather(world, waiting("b", 2))
    assert len(world.deferred) == 1
    world.settle()

    assert gather(world, waiting("c", 3)) == []
    world.settle()
    assert len(world.store.batches[0]) == 2


def test_a_failed_write_fails_all_of_them_and_leaves_nothing_behind() -> None:
    world = World()
    answers = [gather(world, waiting("a", 1)), gather(world, waiting("b", 2))]
    world.store.failure = NotEnoughReplicas("one is missing")
    world.settle()
    assert [only_error(each) for each in answers] == [CoordinatorNotAvailable] * 2
    assert world.shard.values == {}

    world.store.failure = None
    after = gather(world, waiting("c", 3))
    world.settle()
    assert after == ["c=3"]
    assert world.shard.values == {"c": 3}


def test_answers_wait_until_their_batch_is_committed() -> None:
    world = World()
    world.store.holds_commits = True
    answers = [gather(world, waiting("a", 1)), gather(world, waiting("b", 2))]
    world.settle()
    assert answers == [[], []]
    assert world.shard.values == {"a": 1, "b": 2}
    world.store.commit()
    assert answers == [["a=1"], ["b=2"]]


def test_a_batch_that_is_not_committed_in_time_fails_all_of_them() -> None:
    world = World()
    world.store.holds_commits = True
    answers = [gather(world, waiting("a", 1)), gather(world, waiting("b", 2))]
    world.settle()
    world.store.commit(RequestTimedOut("too slow"))
    assert [only_error(each) for each in answers] == [CoordinatorNotAvailable] * 2


def test_a_decision_that_raises_in_the_middle_fails_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    def refuse(shard: Counts, now: Moment) -> Decision[str]:
        raise InvalidRequest("no")

    def fail(shard: Counts, now: Moment) -> Decision[str]:
        raise ZeroDivisionError

    first = gather(world, waiting("a", 1))
    assert only_error(gather(world, refuse)) is InvalidRequest
    assert only_error(gather(world, fail)) is UnknownServerError
    last = gather(world, waiting("b", 2))
    world.settle()
    assert (first, last) == (["a=1"], ["b=2"])
    assert world.store.record_count() == 2
    assert "could not decide" in caplog.text


def test_who_reads_or_writes_meanwhile_sees_them_written() -> None:
    world = World()
    first = gather(world, waiting("a", 1))
    assert world.read("a") == [1]
    assert first == ["a=1"]

    second = gather(world, waiting("a", 2))
    assert world.write(put("a", 3)) == ["a=3"]
    assert second == ["a=2"]
    world.settle()
    assert world.shard.values == {"a": 3}
    assert len(world.store.batches[0]) == 3


def test_what_may_not_wait_is_written_after_what_does() -> None:
    world = World()
    first = gather(world, waiting("a", 1))
    assert gather(world, put("a", 2)) == ["a=2"]
    assert first == ["a=1"]
    assert gather(world, lambda shard, now: Decision("seen", may_wait=True)) == ["seen"]
    assert world.shard.values == {"a": 2}


def test_the_end_of_a_transaction_comes_after_them() -> None:
    world = World()
    first = gather(world, waiting("a", 1))
    done: list[ApiError | None] = []
    world.runtime.end_transaction(
        0,
        ProducerStamp(7, 0),
        coordinator_epoch=0,
        transaction_version=2,
        is_committed=True,
        done=done.append,
    )
    assert (first, done) == (["a=1"], [None])
    assert world.shard.ends == [(ProducerStamp(7, 0), True)]


def test_a_timer_decides_after_them() -> None:
    world = World()
    world.shard.timers.set("now", 0, lambda now: Decision(None, [record("a", 2)]))
    first = gather(world, waiting("a", 1))
    world.runtime.tick()
    assert first == ["a=1"]
    assert world.shard.values == {"a": 2}


def test_a_timer_that_was_set_meanwhile_is_armed() -> None:
    world = World()

    def decide(shard: Counts, now: Moment) -> Decision[str]:
        shard.timers.set("later", now.now_ms + 10, lambda now: Decision(None))
        return Decision("ok", [record("a", 1)], may_wait=True)

    gather(world, decide)
    world.settle()
    assert world.armed == [world.clock.monotonic_ms() + 10]


def test_nothing_is_written_when_another_broker_leads() -> None:
    world = World()
    answers = gather(world, waiting("a", 1))
    world.runtime.resigned(0)
    assert only_error(answers) is NotCoordinator
    world.settle()
    assert world.store.batches == {}
    assert only_error(gather(world, waiting("b", 2))) is NotCoordinator


def test_all_of_them_are_there_after_a_restart() -> None:
    world = World()
    for number in range(5):
        gather(world, waiting(f"name-{number}", number))
    world.settle()
    world.runtime.elected(0, 2)
    world.settle()
    assert len(world.shards) == 2
    assert world.shard.values == {f"name-{number}": number for number in range(5)}


def test_a_record_that_does_not_fit_has_the_state_loaded_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.shard.breaks_on = 2
    answers = [gather(world, waiting("a", 1)), gather(world, waiting("b", 2))]
    assert only_error(world.write(put("c", 3))) is CoordinatorNotAvailable
    assert [only_error(each) for each in answers] == [CoordinatorNotAvailable] * 2
    world.settle()
    assert world.shard.values == {"a": 1, "b": 2}, "the log has them"
    assert "does not fit" in caplog.text


@pytest.mark.parametrize("way", ["not waiting", "too large", "end"])
def test_nobody_decides_on_a_state_that_is_gone(way: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.shard.breaks_on = 1
    gather(world, waiting("a", 1))
    answers: list[object] = []
    if way == "not waiting":
        world.runtime.gather("key", put("b", 2), answers.append)
    elif way == "too large":
        many = [record(f"{'x' * 1000}{each}", each) for each in range(100)]
        world.runtime.gather(
            "key", lambda shard, now: Decision("many", many, may_wait=True), answers.append
        )
    else:
        world.runtime.end_transaction(
            0,
            ProducerStamp(7, 0),
            coordinator_epoch=0,
            transaction_version=2,
            is_committed=True,
            done=answers.append,
        )
    assert only_error(answers) is CoordinatorNotAvailable
    assert world.store.record_count() == 1


def test_a_batch_is_not_larger_than_the_topic_takes() -> None:
    world = World()
    world.store.size_max = 500
    answers = [gather(world, waiting(f"name-{number}", number)) for number in range(20)]
    world.settle()
    assert answers == [[f"name-{number}={number}"] for number in range(20)]
    assert len(world.store.batches[0]) > 1
    assert max(len(each) for each in world.store.batches[0]) <= 500


def test_a_full_batch_is_written_before_the_end_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_batch, "SHARED_BYTES_MAX", 300)
    world = World()
    answers = [gather(world, waiting(f"name-{number}", number)) for number in range(4)]
    assert answers[0] == ["name-0=0"]
    assert answers[-1] == []


def test_one_answer_that_fails_does_not_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    def fail(answer: object) -> None:
        raise ZeroDivisionError

    world.runtime.gather("key", waiting("a", 1), fail)
    answers = gather(world, waiting("b", 2))
    world.settle()
    assert answers == ["b=2"]
    assert "an answer could not be given" in caplog.text


def test_a_partition_that_is_gone_from_the_store_is_told_at_once() -> None:
    world = World()
    world.store.failure = NotEnoughReplicas("gone")

    def no_size(partition: int) -> int:
        raise NotEnoughReplicas("gone")

    world.store.batch_size_max = no_size  # type: ignore[method-assign]  # A store that has lost it.
    assert only_error(gather(world, waiting("a", 1))) is CoordinatorNotAvailable
