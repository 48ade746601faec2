"""A transaction coordinator with its log in memory, and markers that a test writes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.clock import ManualClock
from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.ending import EndRequest
from millstream.coordinator.transaction.shard import TransactionShard
from millstream.protocol.records_framing import TRANSACTION_RECORDS
from millstream.types import TopicPartition
from tests.unit.coordinator.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.transaction.metadata import TransactionMetadata
    from millstream.coordinator.transaction.ports import EndedTransaction
    from millstream.errors import ApiError

TXN = "payments"
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = 0, 2
"""Producers of before and since transaction.version 2."""


class Ids:
    """Producer ids in order."""

    def __init__(self) -> None:
        self.next_id = 1000
        self.error: ApiError | None = None

    def generate(self, done: Callable[[int | ApiError], None]) -> None:
        if self.error is not None:
            done(self.error)
            return
        self.next_id += 1
        done(self.next_id)


class World:
    """A coordinator of one partition. Markers are written at once unless `holds_markers`."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.deferred: deque[Callable[[], None]] = deque()
        self.ids = Ids()
        self.holds_markers = False
        self.sent: list[EndedTransaction] = []
        self.forgotten: list[int] = []
        self.config = config or TransactionConfig()
        self.shard: TransactionShard | None = None
        self.epoch = 0
        self.runtime = CoordinatorRuntime(
            "__transaction_state",
            codec=TRANSACTION_RECORDS,
            make_shard=self._make,
            store=self.store,
            partition_count=lambda: 1,
            clock=self.clock,
            defer=self.deferred.append,
            arm=lambda _: None,
            write_timeout_ms=5000,
        )
        self.coordinator = TransactionCoordinator(self.runtime, self.ids, self.config)
        self.restart()

    def _make(self, partition: int, epoch: int) -> TransactionShard:
        self.shard = TransactionShard(partition, epoch, self.config, self)
        return self.shard

    def send(self, ended: EndedTransaction) -> None:
        self.sent.append(ended)
        if not self.holds_markers:
            self.coordinator.markers_written(ended)

    def forget(self, coordinator_partition: int) -> None:
        self.forgotten.append(coordinator_partition)

    def restart(self) -> None:
        """Another broker, or the same one again, takes over."""
        self.epoch += 1
        self.runtime.elected(0, self.epoch)
        while self.deferred:
            self.deferred.popleft()()
        self.runtime.tick()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.runtime.tick()

    @property
    def state(self) -> TransactionMetadata:
        assert self.shard is not None
        return self.shard.transactions[TXN]

    @property
    def title(self) -> str:
        return self.state.state.title

    def init(
        self, expected: ProducerStamp | None = None, timeout_ms: int = 60_000
    ) -> ProducerStamp | ApiError:
        answers: list[ProducerStamp | ApiError] = []
        self.coordinator.init_producer_id(TXN, timeout_ms, expected, answers.append)
        (answer,) = answers
        return answer

    def producer(self) -> ProducerStamp:
        """A producer that may begin."""
        answer = self.init()
        assert isinstance(answer, ProducerStamp)
        return answer

    def add(
        self, producer: ProducerStamp, *partitions: TopicPartition, version: int = NEW
    ) -> ApiError | None:
        answers: list[ApiError | None] = []
        self.coordinator.add_partitions(TXN, producer, partitions or (P0,), version, answers.append)
        (answer,) = answers
        return answer

    def end(
        self, producer: ProducerStamp, *, is_commit: bool = True, version: int = NEW
    ) -> ProducerStamp | ApiError:
        answers: list[ProducerStamp | ApiError] = []
        self.coordinator.end(TXN, EndRequest(producer, is_commit, version), answers.append)
        (answer,) = answers
        return answer
