"""The contenders of `benchmarks.clients`: the same jobs, each written as its users would write it.

A job gets a topic and a count, does its work and returns how many records it saw. One instance per
process; connections are made by `open`, which is not measured. Nothing here measures.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

CONSUME_SECONDS_MAX: Final = 60.0


def values(size: int) -> list[bytes]:
    """Some values of a size, different enough."""
    return [bytes([65 + number % 26]) * size for number in range(16)]


@functools.cache
def keys(count: int) -> list[bytes]:
    """Keys of 11 bytes. The round that warms up makes them: they are no contender's work."""
    return [b"key-%07d" % (number % 10_000) for number in range(count)]


def table(size: int, count: int) -> Any:
    """Keys and values as a pyarrow table."""
    import pyarrow

    choice = values(size)
    return pyarrow.table(
        {
            "key": pyarrow.array(keys(count), pyarrow.binary()),
            "value": pyarrow.array([choice[n % 16] for n in range(count)], pyarrow.binary()),
        }
    )


class Millstream:
    """Our blocking clients, with the settings they come with."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Any = None
        self._tables: dict[tuple[int, int], Any] = {}

    def open(self, job: str, topic: str, size: int, count: int) -> None:
        """Connect, and make what is sent."""
        from millstream import Producer

        if job.startswith(("produce", "columns-produce")) and self._producer is None:
            self._producer = Producer(self._bootstrap)
        if job == "columns-produce" and (size, count) not in self._tables:
            self._tables[size, count] = table(size, count)

    def produce(self, topic: str, size: int, count: int) -> int:
        """Send and flush."""
        send = self._producer.send
        choice, some_keys = values(size), keys(count)
        for number in range(count):
            send(topic, choice[number & 15], key=some_keys[number])
        self._producer.flush()
        return count

    def produce_told(self, topic: str, size: int, count: int) -> int:
        """Send and look at the offset of every record."""
        send = self._producer.send
        choice, some_keys = values(size), keys(count)
        told = [send(topic, choice[n & 15], key=some_keys[n]) for n in range(count)]
        self._producer.flush()
        return sum(1 for each in told if each.result().offset >= 0)

    def columns_produce(self, topic: str, size: int, count: int) -> int:
        """A table to the topic."""
        self._producer.send_batch(topic, self._tables[size, count])
        self._producer.flush()
        return count

    def _consumer(self, topic: str) -> Any:
        from millstream import Consumer, TopicPartition

        consumer = Consumer(self._bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, index) for index in range(4)])
        return consumer

    def consume(self, topic: str, size: int, count: int) -> int:
        """Read all and touch every value."""
        seen = 0
        deadline = time.perf_counter() + CONSUME_SECONDS_MAX
        with self._consumer(topic) as consumer:
            while seen < count and time.perf_counter() < deadline:
                for record in consumer.poll(timeout=1.0):
                    if len(record.value) == size:
                        seen += 1
        return seen

    def _columns(self, topic: str, count: int, convert: Callable[[Any], int]) -> int:
        seen = 0
        deadline = time.perf_counter() + CONSUME_SECONDS_MAX
        with self._consumer(topic) as consumer:
            while seen < count and time.perf_counter() < deadline:
                if (found := consumer.poll_arrow(timeout=1.0)) is not None:
                    seen += convert(found)
        return seen

    def columns_pyarrow(self, topic: str, size: int, count: int) -> int:
        """Read all as pyarrow tables."""
        return self._columns(topic, count, lambda found: found.to_arrow().num_rows)

    def columns_pandas(self, topic: str, size: int, count: int) -> int:
        """Read all as pandas frames, as `to_pandas` makes them unasked: backed by Arrow."""
        return self._columns(topic, count, lambda found: len(found.to_pandas()))

    def columns_objects(self, topic: str, size: int, count: int) -> int:
        """Read all as pandas frames whose keys and values are bytes objects, as the peer's are."""
        return self._columns(topic, count, lambda each: len(each.to_pandas(dtype_backend="numpy")))

    def columns_polars(self, topic: str, size: int, count: int) -> int:
        """Read all as polars frames."""
        return self._columns(topic, count, lambda found: len(found.to_polars()))

    def acked_latencies(self, topic: str, size: int, count: int) -> list[float]:
        """Seconds of each acknowledged send in asyncio, one after the other."""
        from millstream import AsyncProducer

        async def run() -> list[float]:
            value = values(size)[0]
            found = []
            async with AsyncProducer(self._bootstrap, linger=0) as producer:
                for _ in range(count):
                    began = time.perf_counter()
                    await (await producer.send(topic, value))
                    found.append(time.perf_counter() - began)
            return found

        return asyncio.run(run())


class Confluent:
    """confluent-kafka; idempotent and acks=all, as ours is without being asked."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Any = None
        self._tables: dict[tuple[int, int], Any] = {}

    def open(self, job: str, topic: str, size: int, count: int) -> None:
        """Connect, and make what is sent."""
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "enable.idempotence": True,
                    # Its default of 100,000 messages makes the caller wait before 1 MB is full.
                    "queue.buffering.max.messages": 1_000_000,
                    "partitioner": "murmur2_random",
                }
            )
        if job == "columns-produce" and (size, count) not in self._tables:
            self._tables[size, count] = table(size, count)

    def _send_all(self, topic: str, size: int, count: int, told: Any) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        choice, some_keys = values(size), keys(count)
        for number in range(count):
            while True:
                try:
                    produce(topic, choice[number & 15], some_keys[number], on_delivery=told)
                except BufferError:
                    poll(0.01)
                    continue
                break
            if not number & 255:
                poll(0)
        self._producer.flush()

    def produce(self, topic: str, size: int, count: int) -> int:
        """Send and flush."""
        self._send_all(topic, size, count, None)
        return count

    def produce_told(self, topic: str, size: int, count: int) -> int:
        """Send with a callback for every record."""
        offsets: list[int] = []

        def told(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        self._send_all(topic, size, count, told)
        return len(offsets)

    def columns_produce(self, topic: str, size: int, count: int) -> int:
        """A table to the topic, row by row."""
        rows = self._tables[size, count]
        produce, poll = self._producer.produce, self._producer.poll
        pairs = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
        for number, (key, value) in enumerate(pairs):
            while True:
                try:
                    produce(topic, value, key)
                except BufferError:
                    poll(0.01)
                    continue
                break
            if not number & 255:
                poll(0)
        self._producer.flush()
        return len(rows)

    def _consumer(self, topic: str) -> Any:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, index, 0) for index in range(4)])
        return consumer

    def _lists(self, topic: str, count: int, convert: Callable[[list[Any]], int]) -> int:
        consumer = self._consumer(topic)
        seen = 0
        deadline = time.perf_counter() + CONSUME_SECONDS_MAX
        while seen < count and time.perf_counter() < deadline:
            seen += convert(consumer.consume(500, timeout=1.0))
        consumer.close()
        return seen

    def consume(self, topic: str, size: int, count: int) -> int:
        """Read all and touch every value."""
        return self._lists(
            topic, count, lambda found: sum(1 for each in found if len(each.value()) == size)
        )

    def columns_pyarrow(self, topic: str, size: int, count: int) -> int:
        """Read all as pyarrow tables."""
        import pyarrow

        return self._lists(topic, count, lambda found: pyarrow.table(_columns(found)).num_rows)

    def columns_pandas(self, topic: str, size: int, count: int) -> int:
        """Read all as pandas frames."""
        import pandas as pd

        return self._lists(topic, count, lambda found: len(pd.DataFrame(_columns(found))))

    columns_objects = columns_pandas

    def columns_polars(self, topic: str, size: int, count: int) -> int:
        """Read all as polars frames."""
        import polars as pl

        return self._lists(topic, count, lambda found: len(pl.DataFrame(_columns(found))))


def _columns(messages: list[Any]) -> dict[str, list[Any]]:
    return {
        "partition": [each.partition() for each in messages],
        "offset": [each.offset() for each in messages],
        "timestamp": [each.timestamp()[1] for each in messages],
        "key": [each.key() for each in messages],
        "value": [each.value() for each in messages],
    }


class KafkaPython:
    """kafka-python, idempotent and acks=all."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Any = None

    def open(self, job: str, topic: str, size: int, count: int) -> None:
        """Connect."""
        from kafka import KafkaProducer  # type: ignore[import-untyped]  # Nor has it.

        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._bootstrap, enable_idempotence=True, acks="all", linger_ms=5
            )

    def produce(self, topic: str, size: int, count: int) -> int:
        """Send and flush."""
        choice, some_keys = values(size), keys(count)
        for number in range(count):
            self._producer.send(topic, choice[number & 15], key=some_keys[number])
        self._producer.flush()
        return count

    def produce_told(self, topic: str, size: int, count: int) -> int:
        """Send and look at the offset of every record."""
        choice, some_keys = values(size), keys(count)
        told = [self._producer.send(topic, choice[n & 15], key=some_keys[n]) for n in range(count)]
        self._producer.flush()
        return sum(1 for each in told if each.get().offset >= 0)

    def consume(self, topic: str, size: int, count: int) -> int:
        """Read all and touch every value."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", group_id=None
        )
        consumer.assign([TopicPartition(topic, index) for index in range(4)])
        seen = 0
        deadline = time.perf_counter() + CONSUME_SECONDS_MAX
        while seen < count and time.perf_counter() < deadline:
            for found in consumer.poll(timeout_ms=1000).values():
                seen += sum(1 for each in found if len(each.value) == size)
        consumer.close()
        return seen


class Aiokafka:
    """aiokafka, idempotent and acks=all."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def open(self, job: str, topic: str, size: int, count: int) -> None:
        """Nothing: its clients live in an event loop."""

    def produce(self, topic: str, size: int, count: int) -> int:
        """Send all, then wait."""
        return asyncio.run(self._produce(topic, size, count, is_told=False))

    def produce_told(self, topic: str, size: int, count: int) -> int:
        """Send and look at the offset of every record."""
        return asyncio.run(self._produce(topic, size, count, is_told=True))

    async def _produce(self, topic: str, size: int, count: int, *, is_told: bool) -> int:
        choice, some_keys = values(size), keys(count)
        async with self._producer(5) as producer:
            futures = [
                await producer.send(topic, choice[n & 15], key=some_keys[n]) for n in range(count)
            ]
            await producer.flush()
        return sum(1 for each in futures if each.result().offset >= 0) if is_told else count

    def _producer(self, linger_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # Nor it.

        return AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True, linger_ms=linger_ms
        )

    def consume(self, topic: str, size: int, count: int) -> int:
        """Read all and touch every value."""
        return asyncio.run(self._consume(topic, size, count))

    async def _consume(self, topic: str, size: int, count: int) -> int:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", group_id=None
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in range(4)])
        seen = 0
        deadline = time.perf_counter() + CONSUME_SECONDS_MAX
        while seen < count and time.perf_counter() < deadline:
            for found in (await consumer.getmany(timeout_ms=1000)).values():
                seen += sum(1 for each in found if len(each.value) == size)
        await consumer.stop()
        return seen

    def acked_latencies(self, topic: str, size: int, count: int) -> list[float]:
        """Seconds of each acknowledged send, one after the other."""

        async def run() -> list[float]:
            value = values(size)[0]
            found = []
            async with self._producer(0) as producer:
                for _ in range(count):
                    began = time.perf_counter()
                    await producer.send_and_wait(topic, value)
                    found.append(time.perf_counter() - began)
            return found

        return asyncio.run(run())


CONTENDERS: Final[dict[str, Callable[[str], Any]]] = {
    "millstream": Millstream,
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
