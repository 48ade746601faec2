"""Producers that write while a broker dies, and the record of what they were promised.

`kill` runs them. Each producer has a thread and numbers its records; a delivery report is the
broker's promise, and `Ledger` keeps every one with its offset.
"""

from __future__ import annotations

import importlib
import threading
from collections import defaultdict
from random import Random
from typing import Any

from millstream.clock import SystemClock

confluent_kafka: Any = importlib.import_module("confluent_kafka")

Place = tuple[str, int]
"""A topic and a partition."""

_QUEUE_MAX = 3000
"""How far a producer runs ahead of a broker that is not there."""
_READ_MAX_MS = 120_000


class Ledger:
    """What one producer was promised, and what it was told had failed."""

    def __init__(self) -> None:
        self.promised: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """By place: offset to value."""
        self.sent = 0
        self.failed = 0

    def note(self, error: object, message: Any) -> None:
        """A delivery report."""
        if error is not None:
            self.failed += 1
            return
        place = message.topic(), message.partition()
        known = self.promised[place].setdefault(message.offset(), message.value())
        assert known == message.value(), f"two records have offset {message.offset()} of {place}"

    @property
    def count(self) -> int:
        """How many records were promised."""
        return sum(len(offsets) for offsets in self.promised.values())

    def snapshot(self) -> dict[Place, dict[int, bytes]]:
        """What was promised by now; reports may come meanwhile."""
        return {place: dict(offsets) for place, offsets in list(self.promised.items())}


class Writer:
    """A producer in a thread, from `start` to `finish`."""

    def __init__(
        self, name: str, address: str, places: list[Place], seed: int, **settings: object
    ) -> None:
        self.name = name
        self.ledger = Ledger()
        self._places = places
        self._random = Random(seed)
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "linger.ms": 2,
                "queue.buffering.max.messages": _QUEUE_MAX,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                # The broker dies on purpose; its clients need not tell everybody.
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def finish(self) -> None:
        """Write no more, and wait for every report."""
        self._is_stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._producer.flush(60) == 0, f"{self.name} still waits for reports"

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._write_some()
        except BaseException as error:
            self._failure = error

    def _write_some(self) -> None:
        for _ in range(self._random.randint(1, 40)):
            topic, partition = self._random.choice(self._places)
            value = f"{self.name} {self.ledger.sent} ".encode()
            value += b"." * self._random.choice((0, 50, 900))
            try:
                self._producer.produce(
                    topic, value, partition=partition, on_delivery=self.ledger.note
                )
            except BufferError:
                self._producer.poll(0.05)
                return
            self.ledger.sent += 1
        self._producer.poll(self._random.choice((0.0, 0.005, 0.01)))


def read_all(address: str, places: list[Place]) -> dict[Place, dict[int, bytes]]:
    """Every record that is there now: by place, offset to value."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "not used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # The last fetch waits for nothing.
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
        }
    )
    found: dict[Place, dict[int, bytes]] = {place: {} for place in places}
    open_places, clock = set(places), SystemClock()
    try:
        consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])
        deadline_ms = clock.monotonic_ms() + _READ_MAX_MS
        while open_places:
            # It waits for so many, however few there are: a long timeout would be slept through.
            messages = consumer.consume(5000, timeout=0.1)
            assert clock.monotonic_ms() < deadline_ms, f"no end of {sorted(open_places)}"
            for message in messages:
                place = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    found[place][message.offset()] = message.value()
                else:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    open_places.discard(place)
    finally:
        consumer.close()
    return found
