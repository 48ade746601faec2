"""One run: a producer writes, a consumer reads, faults between them, and what must hold."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.core import ProducerCore
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.clock import ManualClock
from millstream.errors import DeliveryTimeout
from tests.simulation.clients.brokers import SimBrokers
from tests.simulation.clients.faults import Faults
from tests.simulation.clients.reader import Reader
from tests.simulation.producer.cluster import TOPIC
from tests.simulation.producer.network import SimSelector
from tests.simulation.producer.world import ACCUMULATORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.client.producer.delivery import Delivery

END_MS = 3_600_000


class ReadingWorld:
    """Producer, brokers, consumer."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.clock = ManualClock()
        self.brokers = SimBrokers(
            random.randint(1, 3), random.randint(1, 4), Random(random.random())
        )
        self.brokers.hints = self.brokers.reading.hints = random.random() < 0.5
        self.selector = SimSelector(self.brokers, self.clock, Random(random.random()))
        self.selector.delay_ms_max = random.choice([0, 2, 20])
        self.selector.late_ms_max = random.choice([0, 10, 1_000])
        self.core = ProducerCore(
            ProducerConfig(
                bootstrap_servers=("broker-1:9092",),
                linger_ms=random.choice([0, 5]),
                batch_size=random.choice([200, 2000, 16384]),
                request_timeout_ms=random.choice([500, 30_000]),
                delivery_timeout_ms=random.choice([40_000, 2_000_000]),
                compression_type=random.choice(["none", "none", "gzip"]),
            ),
            selector=self.selector,
            clock=self.clock,
            random=Random(random.random()),
            accumulator=ACCUMULATORS[seed % len(ACCUMULATORS)],
        )
        self.reader = Reader(
            self.brokers, self.clock, Random(random.random()), isolation_level="read_uncommitted"
        )
        self.faults = Faults(
            self.brokers,
            self.clock,
            Random(random.random()),
            lambda: (self.selector, self.reader.selector),
        )
        self.record_count = random.randint(50, 300)
        self.deliveries: list[tuple[bytes, Delivery]] = []

    def begin_trace(self) -> None:
        """There is no trace yet."""

    @property
    def trace(self) -> Sequence[str]:
        """No messages are kept."""
        return ()

    def run(self) -> None:
        """Write and read with faults; heal; read to the end; check."""
        chance = self.random.choice([0.0, 0.02, 0.1])
        self.selector.break_chance = self.reader.selector.break_chance = chance
        waiting = self.core.wait_for_topic(TOPIC, -1)
        while len(self.deliveries) < self.record_count:
            if waiting.done():
                self._write()
            self.faults.happen()
            self._turn()
        self.faults.end()
        self.core.accumulator.begin_flush()
        limit_ms = self.clock.monotonic_ms() + END_MS
        while self.core.accumulator.incomplete_count or not self.reader.is_at_end(
            is_committed=False
        ):
            assert self.clock.monotonic_ms() < limit_ms, "it does not come to an end"
            self._turn()
        self._check()

    def _turn(self) -> None:
        self.core.runtime.run_once(self.random.choice([1, 5, 50]))
        self.reader.turn()

    def _write(self) -> None:
        for _ in range(self.random.choice([0, 1, 3, 20])):
            value = b"%06d" % len(self.deliveries) + b"x" * self.random.choice([0, 10, 100])
            key = self.random.choice([None, b"%d" % self.random.randint(0, 5)])
            try:
                self.deliveries.append((value, self.core.accumulator.append(TOPIC, -1, key, value)))
            except (TopicNotKnown, MemoryNotFree):
                return

    def _check(self) -> None:
        self.reader.check_end(is_committed=False)
        read = {
            value: (index, offset)
            for index, seen in self.reader.seen.items()
            for offset, value in seen
        }
        assert len(read) == sum(map(len, self.reader.seen.values())), "a record was written twice"
        for value, delivery in self.deliveries:
            error = delivery.exception(0)
            if error is None:
                place = delivery.result(0)
                assert read.get(value) == (place.partition, place.offset), f"{value!r} is not there"
            else:
                assert isinstance(error, DeliveryTimeout), f"{value!r}: {error!r}"
        self.core.dispatcher.stop(10)
