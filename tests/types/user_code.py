"""Code as a user writes it, with every client: mypy and pyright must find nothing in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from millstream import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncTopicReader,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    RecordMetadata,
    RetryingConsumer,
    ShareConsumer,
    TopicPartition,
    TopicReader,
    async_read_topic,
    read_topic,
)
from millstream.client.admin import ConfigResource, NewTopic
from millstream.client.retrying import Attempt, MemorySeen
from millstream.client.serialization import JsonSerde, PydanticSerde


def show(*values: object) -> None:
    """Anything at all."""


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def produce(bootstrap: str) -> RecordMetadata:
    with Producer(bootstrap, linger=0.02, acks="all", value_serializer=JsonSerde()) as producer:
        producer.send("orders", {"id": 1}, key="k", headers={"a": b"1"})
        producer.send("orders", None, partition=3, timestamp=NOON)
        delivery = producer.send("orders", "x", on_delivery=lambda each: show(each.done()))
        producer.flush(timeout=10)
        if delivery.exception() is None:
            show(delivery.result().offset + 1)
        return delivery.result(timeout=1.0)


def transact(bootstrap: list[str], consumer: Consumer) -> None:
    producer = Producer(bootstrap, transactional_id="t", namespace="staging")
    with producer, producer.transaction():
        producer.send("out", b"v")
        offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())


def consume(bootstrap: str) -> list[ConsumerRecord]:
    with Consumer(
        bootstrap,
        "orders",
        "payments",
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout=30.0,
        isolation_level="read_committed",
    ) as consumer:
        for record in consumer:
            offset: int = record.offset
            show(record.topic.upper(), offset + 1, record.headers)
            break
        partition = TopicPartition("orders", 0)
        consumer.seek(partition, 5)
        consumer.seek_to_time(NOON)
        consumer.commit({partition: 6})
        found: OffsetAndMetadata | None = consumer.committed([partition])[partition]
        show(found, consumer.lag(partition) + 1)
        return consumer.poll(timeout=0.5, max_records=10)


def tables(bootstrap: str) -> Any:
    batch = Consumer(bootstrap).poll_arrow(columns=["key", "value"])
    if batch is not None:
        batch.to_pandas()
    return read_topic(bootstrap, "orders", start="earliest", end=NOON).to_polars()


async def asynchronous_tables(bootstrap: str) -> int:
    with TopicReader(bootstrap, isolation_level="read_committed") as reader:
        reader.read("orders", start=5, columns=["value"]).to_arrow()
    async with AsyncTopicReader(bootstrap) as readers:
        read = await readers.read("orders", end=NOON, timeout=5.0)
        await read.to_pandas()
    return sum([len(batch) async for batch in await async_read_topic(bootstrap, "orders")])


async def asynchronous(bootstrap: str) -> int:
    async with (
        AsyncProducer(bootstrap) as producer,
        AsyncConsumer(bootstrap, "orders", group_id="g") as consumer,
        AsyncAdmin(bootstrap) as admin,
    ):
        await admin.create_topic("orders", partitions=3)
        delivery = await producer.send("orders", b"v")
        sent: RecordMetadata = await delivery
        async for record in consumer:
            show(record.offset)
            break
        await consumer.commit()
        return sent.offset


def administrate(bootstrap: str) -> None:
    with Admin(bootstrap, request_timeout=5.0) as admin:
        created = admin.create_topics([NewTopic("a", partitions=2), NewTopic("b")])
        for name, error in created.errors.items():
            show(name.upper(), error)
        described = admin.describe_topics(["a"])["a"]
        show(described.partitions[0].leader)
        resource = ConfigResource("topic", "a")
        admin.incremental_alter_configs({resource: {"retention.ms": 1000}}).raise_first()


def share(bootstrap: str) -> None:
    with ShareConsumer(bootstrap, "orders", group_id="g") as consumer:
        for record in consumer.poll(1.0):
            if record.delivery_count > 3:
                consumer.acknowledge(record, "reject")
        consumer.commit()


def retry(bootstrap: str) -> None:
    def handle(order: Attempt) -> None:
        show(order.number + 1, order.value)

    RetryingConsumer(
        bootstrap,
        ["orders"],
        handle,
        group_id="g",
        retry_delays=(1.0, 60.0),
        seen=MemorySeen(),
        value_deserializer=PydanticSerde(int),
    ).run(idle_timeout=5.0)
