"""Consume, transform, produce: exactly once, whatever is killed.

    python -m tests.integration.coordinator.exactly_once --kills 40

A feeder writes numbers to a topic. Workers, each a process with a transactional producer of
librdkafka, read them as one group, write them on and commit their offsets in the same transaction.
Meanwhile workers and the broker get `kill -9` and start again. In the end a reader of committed
records must find every number exactly once, in the partition and order of the input.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.clock import SystemClock
from tests.integration.node.harness import NodeProcess, free_port
from tests.waiting import let_time_pass

if TYPE_CHECKING:
    from collections.abc import Iterator

confluent_kafka: Any = importlib.import_module("confluent_kafka")
admin_api: Any = importlib.import_module("confluent_kafka.admin")

SOURCE, TARGET, GROUP = "source", "target", "transformers"
PARTITIONS = 3
WORKERS = 2
SETTLE_MAX_MS = 120_000
_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=2",
    # Members of the new protocol get from the broker what classic ones set for themselves: a killed
    # worker is missed after six seconds, not after the default's 45.
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has shown."""

    numbers: int
    worker_kills: int
    broker_kills: int


def work(address: str, name: str, protocol: str) -> None:
    """One worker, until it is killed."""
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.subscribe([SOURCE])
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": name,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            # Else librdkafka throws away the brokers it knows when there is none to be had, and may
            # wait for ever for one of those to take its offsets (confluentinc/librdkafka#5511).
            "metadata.recovery.strategy": "none",
        }
    )
    producer.init_transactions()
    while True:
        messages = [each for each in consumer.consume(50, timeout=0.2) if each.error() is None]
        if messages:
            _transform(consumer, producer, messages)


def _transform(consumer: Any, producer: Any, messages: list[Any]) -> None:
    """Everything or nothing; after nothing the messages are read again."""
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(TARGET, message.value(), partition=message.partition())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
    except confluent_kafka.KafkaException as error:
        reason = error.args[0]
        if reason.fatal():
            raise
        producer.abort_transaction()
        for each in consumer.committed(consumer.assignment(), timeout=30):
            start = each.offset if each.offset >= 0 else 0
            consumer.seek(confluent_kafka.TopicPartition(each.topic, each.partition, start))


class Drama:
    """A broker, its workers, and what happens to them."""

    def __init__(self, data: Path, seed: int, protocol: str) -> None:
        self._data = data
        self._random = Random(seed)
        self._protocol = protocol
        self._port = free_port()
        self.address = f"localhost:{self._port}"
        self._broker = self._start_broker()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._clock = SystemClock()
        self.numbers = self.worker_kills = self.broker_kills = 0

    def _start_broker(self) -> NodeProcess:
        settings = [part for each in _SETTINGS for part in ("--set", each)]
        node = NodeProcess(self._data, "--listen", self.address, *settings)
        node.until_ready()
        return node

    def _start_worker(self, name: str) -> None:
        command = [sys.executable, "-m", __spec__.name, "--worker", name]
        command += ["--address", self.address, "--protocol", self._protocol]
        self._workers[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def run(self, kills: int) -> Report:
        """Play it, and check the end."""
        admin = admin_api.AdminClient({"bootstrap.servers": self.address})
        topics = [admin_api.NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
        for created in admin.create_topics(topics).values():
            created.result(30)
        for number in range(WORKERS):
            self._start_worker(f"worker-{number}")
        for kill in range(kills):
            self._feed(300)
            self._clock_wait(self._random.randint(200, 1500))
            if kill % 3 == 1:
                self._kill_broker()
            else:
                self._kill_worker()
        self._feed(100)
        self._check()
        return Report(self.numbers, self.worker_kills, self.broker_kills)

    def _feed(self, count: int) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.address, "enable.idempotence": True}
        )
        for _ in range(count):
            producer.produce(SOURCE, b"%d" % self.numbers, partition=self.numbers % PARTITIONS)
            self.numbers += 1
        assert producer.flush(60) == 0

    def _clock_wait(self, ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + ms
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            for name, worker in list(self._workers.items()):
                if worker.poll() is not None:
                    self._start_worker(name)  # It was fenced: its successor took over.
            let_time_pass(min(left_ms, 100) / 1000)

    def _kill_broker(self) -> None:
        self._broker.close()
        self._broker = self._start_broker()
        self.broker_kills += 1

    def _kill_worker(self) -> None:
        name = self._random.choice(sorted(self._workers))
        self._workers[name].kill()
        self._workers[name].wait()
        self._start_worker(name)
        self.worker_kills += 1

    def _check(self) -> None:
        expected = {
            partition: [b"%d" % each for each in range(partition, self.numbers, PARTITIONS)]
            for partition in range(PARTITIONS)
        }
        found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        deadline_ms = self._clock.monotonic_ms() + SETTLE_MAX_MS
        for partition, value in self._committed():
            if value is not None:
                found[partition].append(value)
            elif sum(map(len, found.values())) >= self.numbers:
                break
            else:
                self._clock_wait(50)
                assert self._clock.monotonic_ms() < deadline_ms, {
                    each: f"{len(values)} of {len(expected[each])}"
                    for each, values in found.items()
                }
        assert found == expected

    def _committed(self) -> Iterator[tuple[int, bytes | None]]:
        """What a reader of committed records sees; None when there is nothing at the moment."""
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "checker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        reader.assign(
            [confluent_kafka.TopicPartition(TARGET, each, 0) for each in range(PARTITIONS)]
        )
        try:
            while True:
                messages = reader.consume(500, timeout=0.5)
                for message in messages:
                    assert message.error() is None, message.error()
                    yield message.partition(), message.value()
                if not messages:
                    yield 0, None
        finally:
            reader.close()

    def close(self) -> None:
        """End everybody."""
        for worker in self._workers.values():
            worker.kill()
            worker.wait()
        self._broker.close()


def play(data: Path, *, kills: int, seed: int, protocol: str) -> Report:
    """One run."""
    drama = Drama(data, seed, protocol)
    try:
        return drama.run(kills)
    finally:
        drama.close()


def main() -> None:
    """Run from the command line; a worker is the same program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.address, given.worker, given.protocol)
        return
    with tempfile.TemporaryDirectory() as directory:
        report = play(
            Path(directory) / "data", kills=given.kills, seed=given.seed, protocol=given.protocol
        )
    print(report)  # noqa: T201  # The output of a command.


if __name__ == "__main__":
    main()
