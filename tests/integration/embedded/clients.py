"""The same few things done with three independent clients.

Each writes values to a topic, reads a number of them back and creates topics. No consumer groups:
partitions are assigned.
"""

from __future__ import annotations

import asyncio
import uuid
import warnings
from typing import Protocol

import aiokafka  # type: ignore[import-untyped]  # no stubs
import aiokafka.admin  # type: ignore[import-untyped]  # no stubs
import confluent_kafka
import confluent_kafka.admin
from confluent_kafka.cimpl import NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
    import kafka  # type: ignore[import-untyped]  # no stubs
    import kafka.admin  # type: ignore[import-untyped]  # no stubs

SECONDS_MAX = 30
"""For a machine that does much else at the same time."""


class Client(Protocol):
    """What a test asks of a client."""

    def produce(self, servers: str, topic: str, *values: bytes) -> None:
        """Write to partition 0 and wait for the acknowledgements."""
        ...

    def consume(self, servers: str, topic: str, count: int) -> list[bytes]:
        """The first values of partition 0."""
        ...

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        """Create a topic."""
        ...


class Confluent:
    """confluent-kafka, which is librdkafka."""

    def produce(self, servers: str, topic: str, *values: bytes) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "linger.ms": 0, "retry.backoff.ms": 10}
        )
        errors: list[object] = []
        for value in values:
            producer.produce(
                topic, value, partition=0, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert errors == [None] * len(values)

    def consume(self, servers: str, topic: str, count: int) -> list[bytes]:
        settings = {"bootstrap.servers": servers, "group.id": str(uuid.uuid4())}
        consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, SECONDS_MAX)
        consumer.close()
        return [message.value() or b"" for message in messages]

    def first_offset(self, servers: str, topic: str) -> int:
        """Where partition 0 begins."""
        settings = {"bootstrap.servers": servers, "group.id": str(uuid.uuid4())}
        consumer = confluent_kafka.Consumer(settings)
        partition = confluent_kafka.TopicPartition(topic, 0)
        low, _ = consumer.get_watermark_offsets(partition, timeout=SECONDS_MAX)
        consumer.close()
        return int(low)

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
        created = admin.create_topics([NewTopic(topic, partitions, 1)])
        created[topic].result(SECONDS_MAX)


class KafkaPython:
    """kafka-python."""

    def produce(self, servers: str, topic: str, *values: bytes) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=servers, retry_backoff_ms=10)
        try:
            sent = [producer.send(topic, value, partition=0) for value in values]
            for each in sent:
                each.get(SECONDS_MAX)
        finally:
            producer.close()

    def consume(self, servers: str, topic: str, count: int) -> list[bytes]:
        partition = kafka.TopicPartition(topic, 0)
        consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None)
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            values: list[bytes] = []
            while len(values) < count:
                found = consumer.poll(SECONDS_MAX * 1000)
                assert found, "nothing came in time"
                values += [record.value for record in found[partition]]
        finally:
            consumer.close()
        return values

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        try:
            admin.create_topics([kafka.admin.NewTopic(topic, partitions, 1)])
        finally:
            admin.close()


class Aiokafka:
    """aiokafka."""

    def produce(self, servers: str, topic: str, *values: bytes) -> None:
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, retry_backoff_ms=10)
            async with producer:
                for value in values:
                    await producer.send_and_wait(topic, value, partition=0)

        asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))

    def consume(self, servers: str, topic: str, count: int) -> list[bytes]:
        async def work() -> list[bytes]:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
            async with consumer:
                consumer.assign([partition])
                consumer.seek(partition, 0)
                return [(await consumer.getone()).value or b"" for _ in range(count)]

        return asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        async def work() -> None:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                await admin.create_topics([aiokafka.admin.NewTopic(topic, partitions, 1)])
            finally:
                await admin.close()

        asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))
