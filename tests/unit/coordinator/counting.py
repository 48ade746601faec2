"""A coordinator that remembers numbers: the least that a runtime can serve."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.clock import ManualClock
from millstream.coordinator.decision import CoordinatorRecord, Decision, Moment, ProducerStamp
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.timers import TimerQueue
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
        self.breaks_on: int | None = None
        """A number that the next shards cannot replay."""
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
        self.shards[-1].breaks_on = self.breaks_on
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
