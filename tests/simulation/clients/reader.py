"""A consumer in virtual time that checks what it gets, record by record."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from millstream.client.config import settings_from_kwargs
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.session import ConsumerSession
from millstream.types import TopicPartition
from tests.simulation.producer.cluster import TOPIC
from tests.simulation.producer.network import SimSelector

if TYPE_CHECKING:
    from millstream.client.consumer.steps import Steps
    from millstream.clock import ManualClock
    from tests.simulation.clients.brokers import SimBrokers

T = TypeVar("T")

ANSWER_BYTES_MIN = 64 * 1024
"""What a fetcher asks for at least, however small its buffer is."""


class Reader:
    """Reads every partition of the topic by `assign`."""

    def __init__(
        self, brokers: SimBrokers, clock: ManualClock, random: Random, *, isolation_level: str
    ) -> None:
        self._brokers = brokers
        self._random = random
        self.selector = SimSelector(brokers, clock, Random(random.random()))
        self.selector.delay_ms_max = random.choice([0, 2, 20])
        self.selector.late_ms_max = random.choice([0, 10, 1_000])
        self._prefetch_bytes = random.choice([500, 20_000, 1 << 20])
        config = settings_from_kwargs(
            ConsumerConfig,
            {
                "bootstrap_servers": ("broker-1:9092",),
                "auto_offset_reset": "earliest",
                "isolation_level": isolation_level,
                "fetch_max_wait": random.choice([0.001, 0.05, 0.5]),
                "prefetch_bytes": self._prefetch_bytes,
                "fetch_max_bytes": random.choice([1_000, 50 << 20]),
                "max_partition_fetch_bytes": random.choice([300, 1 << 20]),
                "request_timeout": random.choice([1.0, 30.0]),
            },
        )
        self.session = ConsumerSession(
            config, clock=clock, selector=self.selector, random=Random(random.random())
        )
        self.partitions = [TopicPartition(TOPIC, each.index) for each in brokers.logs]
        self.session.assign(self.partitions)
        self.seen: dict[int, list[tuple[int, bytes]]] = {each.index: [] for each in brokers.logs}
        self._positions: dict[TopicPartition, int] = {}

    def turn(self) -> None:
        """Let the I/O side work; then, often, read."""
        self.session.runtime.run_once(self._random.choice([1, 5, 50]))
        self._check_memory()
        if self._random.random() < 0.7:
            self.read()

    def read(self) -> None:
        """Take what is here, and check it."""
        count = self._random.choice([1, 7, 500])
        for record in _at_once(self.session.poll(0.0, count)):
            seen = self.seen[record.partition]
            assert not seen or record.offset > seen[-1][0], f"{record} came again, or too late"
            seen.append((record.offset, bytes(record.value or b"")))
        self._check_positions()

    def _check_positions(self) -> None:
        for partition, (position, _epoch) in self.session.buffer.positions(processed=False).items():
            assert position >= self._positions.get(partition, 0), f"{partition} went back"
            seen = self.seen[partition.partition]
            assert not seen or position > seen[-1][0], f"{partition}: behind what was read"
            self._positions[partition] = position

    def _check_memory(self) -> None:
        node_count = len(self._brokers.brokers)
        answer = max(self._prefetch_bytes // node_count, ANSWER_BYTES_MIN)
        answer = max(answer, self._prefetch_bytes)
        largest = max((len(b.data) for log in self._brokers.logs for b in log.batches), default=0)
        bound = self._prefetch_bytes + node_count * (answer + largest)
        used = self.session.buffer.byte_count
        assert 0 <= used <= bound, f"{used} bytes wait, {bound} may"

    def is_at_end(self, *, is_committed: bool) -> bool:
        """Whether everything readable was read, and what hides nothing but markers passed by."""
        return all(
            self._positions.get(partition, 0) >= (log.stable_end if is_committed else log.end)
            for partition, log in zip(self.partitions, self._brokers.logs, strict=True)
        )

    def check_end(self, *, is_committed: bool) -> None:
        """Everything was read once, in order, and nothing else."""
        for log in self._brokers.logs:
            wanted = log.readable(is_committed=is_committed)
            assert self.seen[log.index] == wanted, f"partition {log.index}: not what is there"
        assert self.session.buffer.byte_count == 0

    def heal(self) -> None:
        """No more faults."""
        self.selector.break_chance = 0.0


def _at_once(steps: Steps[T]) -> T:
    """A call that does not wait."""
    try:
        step = next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError(f"it waits: {step}")
