"""What does a record cost in confluent-kafka, end to end over a real socket?

Part of `benchmarks.records`. librdkafka's own mock cluster is the broker; it runs in this process,
and the CPU time of its thread is left out. It is more than a codec: queues, batches, requests.
"""

from __future__ import annotations

import logging
import statistics
from importlib import import_module
from pathlib import Path
from typing import Any

WARM_UP_ROUNDS, ROUNDS = 1, 5
MOCK_THREAD = "rdk:mock"
PARTITION_BYTES_MAX = 4_000_000
"""The mock broker forgets what is older than 5 MiB."""
RECORD_OVERHEAD = 30


def cpu_ns() -> int:
    """CPU time of all threads of this process but the mock broker's."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().strip() != MOCK_THREAD:
                total += int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread has ended meanwhile
            continue
    return total


def measure(size: int, count: int) -> dict[str, float]:
    """Median CPU nanoseconds per record to produce and to consume."""
    confluent: Any = import_module("confluent_kafka")
    logger = logging.Logger("confluent-kafka")
    logger.addHandler(logging.NullHandler())
    count = min(count, PARTITION_BYTES_MAX // (size + RECORD_OVERHEAD))
    producer = confluent.Producer(
        {"test.mock.num.brokers": 1, "queue.buffering.max.messages": count, "linger.ms": 5},
        logger=logger,
    )
    brokers = producer.list_topics(timeout=10).brokers.values()
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers),
            "group.id": "benchmark",
            "auto.offset.reset": "error",
        },
        logger=logger,
    )
    samples: dict[str, list[float]] = {"produce": [], "consume": []}
    for round_number in range(WARM_UP_ROUNDS + ROUNDS):
        topic = f"records-{round_number}"
        samples["produce"].append(_produce(producer, topic, size, count))
        samples["consume"].append(_consume(confluent, consumer, topic, count))
    consumer.close()
    return {verb: statistics.median(taken[WARM_UP_ROUNDS:]) for verb, taken in samples.items()}


def _produce(producer: Any, topic: str, size: int, count: int) -> float:
    keys = [b"key-%07d" % i for i in range(count)]
    value = b"v" * size
    start = cpu_ns()
    produce = producer.produce
    for key in keys:
        produce(topic, value, key, partition=0)
    producer.flush()
    return (cpu_ns() - start) / count


def _consume(confluent: Any, consumer: Any, topic: str, count: int) -> float:
    start = cpu_ns()
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=10)
        if not messages:
            raise RuntimeError(f"the mock broker stopped after {seen} of {count} records")
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
            message.key()
            message.value()
            message.offset()
            message.timestamp()
        seen += len(messages)
    return (cpu_ns() - start) / count
