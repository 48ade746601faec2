"""One run: a producer, a cluster, faults from a seed, and what must hold after every event."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.client.producer.compiled_accumulator import CompiledAccumulator
from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.core import ProducerCore
from millstream.client.producer.kernel import COMPILED
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import ManualClock
from millstream.errors import DeliveryTimeout
from tests.simulation.producer.cluster import TOPIC, SimCluster
from tests.simulation.producer.network import SimSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.client.producer.delivery import Delivery

BUFFER_MEMORY = 64 * 1024

ACCUMULATORS = (RecordAccumulator, CompiledAccumulator) if COMPILED else (RecordAccumulator,)
"""The plain accumulator and the compiled one. The latter gives records the machine's timestamps,
and without the sockets' thread does not send by itself; all else is in the simulation's time."""


class ProducerWorld:
    """A producer that sends numbered records while things go wrong."""

    def __init__(
        self, seed: int, accumulator: Callable[..., RecordAccumulator] | None = None
    ) -> None:
        """`accumulator` is the accumulator's class; without one, the seed chooses."""
        self.random = random = Random(seed)
        self.clock = ManualClock()
        self.cluster = SimCluster(
            broker_count=random.randint(1, 3),
            partition_count=random.randint(1, 4),
            batch_bytes_max=random.choice([1 << 20, 1 << 20, 600]),
        )
        self.cluster.hints = random.random() < 0.5
        self.selector = SimSelector(self.cluster, self.clock, Random(random.random()))
        self.selector.delay_ms_max = random.choice([0, 2, 20])
        self.selector.late_ms_max = random.choice([0, 10, 1_000])
        self.config = ProducerConfig(
            bootstrap_servers=("broker-1:9092",),
            linger_ms=random.choice([0, 1, 5]),
            batch_size=random.choice([200, 2000, 16384]),
            buffer_memory=BUFFER_MEMORY,
            delivery_timeout_ms=random.choice([40_000, 2_000_000]),
            request_timeout_ms=random.choice([500, 30_000]),
            max_in_flight_requests_per_connection=random.choice([1, 5, 5]),
            compression_type=random.choice(["none", "none", "gzip"]),
        )
        self.core = ProducerCore(
            self.config,
            selector=self.selector,
            clock=self.clock,
            random=Random(random.random()),
            accumulator=accumulator or ACCUMULATORS[seed % len(ACCUMULATORS)],
        )
        self.record_count = random.randint(50, 400)
        self.deliveries: list[tuple[bytes, Delivery]] = []
        self.ended: dict[int, int] = {}
        self._waits: Any = None
        self._trace: list[str] | None = None

    def begin_trace(self) -> None:
        """Keep the messages from now on."""
        self._trace = []

    @property
    def trace(self) -> Sequence[str]:
        """The messages that were kept."""
        return self._trace or ()

    def run(self) -> None:
        """Send everything, with faults; heal; wait; check."""
        self.selector.break_chance = self.random.choice([0.0, 0.02, 0.1])
        while len(self.deliveries) < self.record_count:
            self._send_some()
            self._let_something_happen()
            self._turn()
        self._heal()
        self.core.accumulator.begin_flush()
        limit_ms = self.clock.monotonic_ms() + self.config.delivery_timeout_ms + 60_000
        while self.core.accumulator.incomplete_count:
            assert self.clock.monotonic_ms() < limit_ms, "a record is neither delivered nor lost"
            self._turn()
        self._check_end()

    def _turn(self) -> None:
        self.core.runtime.run_once(self.random.choice([1, 5, 50]))
        used = self.core.accumulator.buffered_bytes
        assert 0 <= used <= BUFFER_MEMORY, f"{used} bytes of {BUFFER_MEMORY} in use"

    def _send_some(self) -> None:
        for _ in range(self.random.choice([0, 1, 3, 20])):
            number = len(self.deliveries)
            value = b"%06d" % number + b"x" * self.random.choice([0, 10, 100])
            key = self.random.choice([None, b"%d" % self.random.randint(0, 5)])
            try:
                delivery = self.core.accumulator.append(TOPIC, -1, key, value)
            except TopicNotKnown:
                if self._waits is None or self._waits.done():
                    self._waits = self.core.wait_for_topic(TOPIC, -1)
                return
            except MemoryNotFree:
                return
            self.deliveries.append((value, delivery))
            delivery.add_done_callback(partial(self._end, number))

    def _end(self, number: int, delivery: Delivery) -> None:
        self.ended[number] = self.ended.get(number, 0) + 1

    def _let_something_happen(self) -> None:
        chance = self.random.random()
        if chance < 0.05:
            index = self.random.randrange(len(self.cluster.partitions))
            self.cluster.move_leader(index, self.random.choice(self.cluster.brokers))
        elif chance < 0.08:
            node = self.random.choice(self.cluster.brokers)
            self.cluster.down.add(node)
            self.selector.break_connections(node)
        elif chance < 0.16 and self.cluster.down:
            self.cluster.down.pop()
        elif chance < 0.18:
            self.clock.advance(self.random.choice([10, 200, 3_000]))

    def _heal(self) -> None:
        self.selector.break_chance = 0.0
        self.cluster.down.clear()

    def _check_end(self) -> None:
        assert self.core.dispatcher.drain(10)
        assert all(count == 1 for count in self.ended.values()), "a record ended twice"
        assert len(self.ended) == len(self.deliveries), "a record did not end"
        places: dict[bytes, tuple[int, int]] = {}
        for partition in self.cluster.partitions:
            assert partition.values == sorted(partition.values), f"{partition.index}: out of order"
            for offset, value in enumerate(partition.values):
                assert value not in places, f"{value!r} was written twice"
                places[value] = partition.index, offset
        for value, delivery in self.deliveries:
            error = delivery.exception(0)
            if error is None:
                told = delivery.result(0)
                assert places.get(value) == (told.partition, told.offset), f"{value!r} is not there"
            else:
                assert isinstance(error, DeliveryTimeout), f"{value!r}: {error!r}"
        self.core.dispatcher.stop(10)
