"""Breaks everything around a producer whose batches the sockets' thread sends by itself.

    python -m tests.integration.client.producer.sending_soak --seeds 100 --start 0

The compiled sink needs real sockets and threads, so the simulations of the producer have none.
Here a seed chooses the producer's settings, what each writer writes (records or tables) and what
goes wrong when: errors of all kinds, answers that are late or never come, connections that break
before and after the broker has acted, brokers that stop, die and come back. How threads
interleave is chance. Whatever happens, every record is there once, at the offset that was told, in
the order of its writer; every callback runs once; and the memory stays within its bound.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream import Producer, read_topic
from millstream.testing import EmbeddedBroker
from tests.simulation.seeds import run_seeds
from tests.waiting import let_time_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "chaos"
WAIT_S = 60.0
SENT_MIN = 3000
"""By each writer, at least."""
RETRIABLE_ERRORS = (
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID",
)


@dataclass(slots=True)
class Written:
    """What one writer sent, in its order, and what it was told."""

    writer: int
    values: list[bytes] = field(default_factory=list)
    deliveries: list[tuple[bytes, Any]] = field(default_factory=list)
    callbacks: Counter[bytes] = field(default_factory=Counter)

    def next_value(self) -> bytes:
        """The next record; its number is the writer's order."""
        value = b"%d %d" % (self.writer, len(self.values))
        self.values.append(value)
        return value


class SendingSoak:
    """One seed: a broker, a producer, its writers and what befalls them."""

    trace: Sequence[str] = ()

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._partitions = self._random.randint(1, 5)
        self._is_over = threading.Event()
        self._enough = threading.Semaphore(0)
        self._buffered_max = 0

    def begin_trace(self) -> None:
        """There are no messages to keep: brokers and sockets are real."""

    def run(self) -> None:
        """Write, break, then look at what is there."""
        with EmbeddedBroker(in_memory=True) as broker:
            broker.create_topic(TOPIC, partitions=self._partitions)
            written = self._write(broker)
            self._check(broker, written)

    # ---- writing ----

    def _settings(self) -> dict[str, Any]:
        choose = self._random.choice
        return {
            "linger": choose([0, 0.0005, 0.003]),
            "batch_size": choose([600, 4096, 16384]),
            "buffer_memory": choose([100_000, 1_000_000]),
            "max_in_flight_requests_per_connection": choose([1, 2, 5, 5]),
            "reconnect_backoff": 0.005,
            "reconnect_backoff_max": 0.05,
            "retry_backoff": 0.005,
            "retry_backoff_max": 0.05,
            "request_timeout": 2.0,
            "delivery_timeout": WAIT_S,
            "max_block": WAIT_S,
        }

    def _write(self, broker: EmbeddedBroker) -> list[Written]:
        settings = self._settings()
        kinds = [self._write_records, self._write_tables]
        chosen = [self._random.choice(kinds) for _ in range(self._random.randint(1, 3))]
        written = [Written(number) for number in range(len(chosen))]
        with (
            Producer(broker.bootstrap_servers, **settings) as producer,
            ThreadPoolExecutor(len(chosen)) as pool,
        ):
            writing = [
                pool.submit(self._until_over, write, producer, each, Random(self._random.random()))
                for write, each in zip(chosen, written, strict=True)
            ]
            try:
                self._break(broker, len(chosen))
            finally:
                self._is_over.set()
            for each in writing:
                each.result(WAIT_S)
            producer.flush(WAIT_S)
            accumulator = producer._core.accumulator
            spare = sum(size for _, size in accumulator._pool._spares)
            assert accumulator.sink.is_attached, "the selector's thread does not send"
            assert accumulator.incomplete_count == 0
            assert accumulator.buffered_bytes == spare, "memory of nobody"
        assert self._buffered_max <= settings["buffer_memory"]
        return written

    def _until_over(
        self,
        write: Callable[[Producer, Written, Random], None],
        producer: Producer,
        written: Written,
        random: Random,
    ) -> None:
        is_enough = False
        try:
            while not (self._is_over.is_set() and is_enough):
                write(producer, written, random)
                buffered = producer._core.accumulator.buffered_bytes
                self._buffered_max = max(self._buffered_max, buffered)
                let_time_pass(random.choice([0, 0, 0.001, 0.01]))
                if not is_enough and len(written.values) >= SENT_MIN:
                    is_enough = True
                    self._enough.release()
        finally:
            self._enough.release()  # A writer that fails must not be waited for.

    def _write_records(self, producer: Producer, written: Written, random: Random) -> None:
        for _ in range(random.randint(1, 200)):
            value = written.next_value()
            partition = random.randrange(self._partitions)
            callback: Any = None
            if random.random() < 0.1:

                def callback(_delivery: Any, value: bytes = value) -> None:
                    written.callbacks[value] += 1

                written.callbacks[value] = 0
            handle = producer.send(TOPIC, value, partition=partition, on_delivery=callback)
            if random.random() < 0.2:
                written.deliveries.append((value, handle))

    def _write_tables(self, producer: Producer, written: Written, random: Random) -> None:
        values = [written.next_value() for _ in range(random.randint(1, 1500))]
        keys = [b"%d" % random.randrange(50) for _ in values]
        table = pa.table(
            {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        )
        sent = producer.send_batch(TOPIC, table)
        if random.random() < 0.3:
            sent.result(WAIT_S)

    # ---- what goes wrong ----

    def _break(self, broker: EmbeddedBroker, writers: int) -> None:
        for _ in range(self._random.randint(10, 60)):
            let_time_pass(self._random.choice([0, 0.002, 0.01, 0.03]))
            self._fault(broker)
        # Faults without an end would be faster than any progress on a busy machine.
        broker.faults.clear()
        for _ in range(writers):
            self._enough.acquire(timeout=WAIT_S)

    def _fault(self, broker: EmbeddedBroker) -> None:
        random, faults = self._random, broker.faults
        match random.randrange(12):
            case 0 | 1 | 2:
                broker.disconnect_clients()
            case 3 | 4:
                faults.drop("Produce", after_handling=True)
            case 5:
                faults.drop("Produce", times=random.randint(1, 3))
            case 6 | 7:
                error = random.choice(RETRIABLE_ERRORS)
                faults.fail("Produce", error, times=random.randint(1, 4))
            case 8 | 9:
                faults.delay("Produce", random.randint(1, 40), times=random.randint(1, 5))
            case 10:
                broker.restart()
            case 11:
                broker.kill()
                broker.start()

    # ---- what is there ----

    def _check(self, broker: EmbeddedBroker, written: list[Written]) -> None:
        table = read_topic(broker.bootstrap_servers, TOPIC, end="latest").to_arrow()
        columns = [table[name].to_pylist() for name in ("partition", "offset", "value")]
        places: dict[bytes, tuple[int, int]] = {}
        last: dict[tuple[int, int], int] = {}
        for partition, offset, value in sorted(zip(*columns, strict=True)):
            assert value not in places, f"{value!r} is there twice"
            places[value] = (partition, offset)
            writer, number = map(int, value.split())
            assert last.get((writer, partition), -1) < number, f"{value!r} was overtaken"
            last[writer, partition] = number
        expected = {value for each in written for value in each.values}
        assert places.keys() == expected, f"{len(expected - places.keys())} records are lost"
        for each in written:
            for value, handle in each.deliveries:
                told = handle.result(WAIT_S)
                assert (told.partition, told.offset) == places[value]
            assert set(each.callbacks.values()) <= {1}, "a callback ran not once"


if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, SendingSoak, "millstream"))
