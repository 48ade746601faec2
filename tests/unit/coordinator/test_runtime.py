"""The runtime: decisions are written, replayed, and answered when they are safe."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.coordinator.decision import CoordinatorRecord, Decision, Moment, ProducerStamp
from millstream.coordinator.runtime import RETRY_MS, CoordinatorRuntime
from millstream.coordinator.timers import TimerQueue
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
from millstream.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from millstream.protocol.records_framing import TRANSACTION_RECORDS
from tests.unit.coordinator.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError
    from millstream.protocol.message import Message


class Counts:
    """A shard that remembers the newest number of each key."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.values: dict[str, int] = {}
        self.stamps: list[ProducerStamp | None] = []
        self.ends: list[tuple[ProducerStamp, bool]] = []
        self.loaded_at: int | None = None
        self.unloaded_with: ApiError | None = None
        self.breaks_on: int | None = None

    def replay(self, key: Message, value: Message | None, stamp: ProducerStamp | None) -> None:
        assert isinstance(key, TransactionLogKey)
        if value is None:
            del self.values[key.transactional_id]
            return
        assert isinstance(value, TransactionLogValue)
        if value.producer_id == self.breaks_on:
            raise AssertionError("a record that does not fit")
        self.values[key.transactional_id] = value.producer_id
        self.stamps.append(stamp)

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        self.ends.append((stamp, is_committed))

    def loaded(self, now_ms: int) -> None:
        self.loaded_at = now_ms

    def unloaded(self, error: ApiError) -> None:
        self.unloaded_with = error


def record(name: str, number: int | None) -> CoordinatorRecord:
    value = None if number is None else TransactionLogValue(producer_id=number)
    return CoordinatorRecord(TransactionLogKey(transactional_id=name), value)


def put(name: str, number: int) -> Callable[[Counts, Moment], Decision[str]]:
    return lambda shard, now: Decision(f"{name}={number}", [record(name, number)])


class World:
    """A runtime with one partition, its log and its clock."""

    def __init__(self, *, is_elected: bool = True) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.deferred: deque[Callable[[], None]] = deque()
        self.armed: list[int] = []
        self.shards: list[Counts] = []
        self.partition_count: int | None = 1
        self.runtime = CoordinatorRuntime(
            "__numbers",
            codec=TRANSACTION_RECORDS,
            make_shard=self._make,
            store=self.store,
            partition_count=lambda: self.partition_count,
            clock=self.clock,
            defer=self.deferred.append,
            arm=self.armed.append,
            write_timeout_ms=5000,
        )
        if is_elected:
            self.runtime.elected(0, 1)

    def _make(self, partition: int, epoch: int) -> Counts:
        self.shards.append(Counts())
        return self.shards[-1]

    @property
    def shard(self) -> Counts:
        return self.shards[-1]

    def settle(self) -> None:
        while self.deferred:
            self.deferred.popleft()()

    def write(self, decide: Callable[[Counts, Moment], Decision[str]]) -> list[object]:
        answers: list[object] = []
        self.runtime.write("key", decide, answers.append)
        return answers

    def read(self, name: str) -> list[object]:
        answers: list[object] = []
        self.runtime.read("key", lambda shard, _: shard.values[name], answers.append)
        return answers


def asked_of(world: World) -> object:
    answers: list[object] = []
    world.runtime.read_all(lambda shard, _: 0, answers.append)
    return answers[-1]


def only_error(answers: list[object]) -> type:
    (answer,) = answers
    return type(answer)


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
