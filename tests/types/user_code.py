"""Code as a user writes it, with every client: mypy and pyright must find nothing in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

from millstream import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    AsyncTopicReader,
    Attempt,
    BrokerUnreachable,
    Consumer,
    ConsumerRecord,
    EmbeddedBroker,
    MillstreamError,
    NewTopic,
    OffsetAndMetadata,
    OperationTimeout,
    Producer,
    RecordMetadata,
    RetryingConsumer,
    ShareConsumer,
    TopicPartition,
    TopicReader,
    async_read_topic,
    is_retriable,
    read_topic,
)
from millstream.client.admin import ConfigResource
from millstream.client.retrying import MemorySeen
from millstream.client.serialization import IntSerde, JsonSerde, PydanticSerde, StrSerde
from millstream.types import ReadableBuffer


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


@dataclass(frozen=True)
class Order:
    """What a topic is about."""

    number: int


def order_of(data: bytes) -> Order:
    return Order(**json.loads(data))


def typed_producers(bootstrap: str) -> None:
    assert_type(Producer(bootstrap), Producer)
    assert_type(
        Producer(bootstrap, value_serializer=StrSerde()), Producer[ReadableBuffer | str, str]
    )
    with Producer(bootstrap, key_serializer=IntSerde(), value_serializer=StrSerde) as producer:
        assert_type(producer, Producer[int, str])
        producer.send("t", "text", key=7)
    # A type checker cannot know what a name or a function takes.
    Producer(bootstrap, value_serializer="json").send("t", {"a": 1})
    Producer(bootstrap, value_serializer=lambda each: json.dumps(each).encode()).send("t", [1])


def typed_consumers(bootstrap: str) -> None:
    assert_type(Consumer(bootstrap), Consumer[bytes, bytes])
    assert_type(Consumer(bootstrap, value_deserializer="json"), Consumer[Any, Any])
    consumer = Consumer(bootstrap, key_deserializer=StrSerde(), value_deserializer=order_of)
    assert_type(consumer, Consumer[str, Order])
    for record in consumer:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.key, str | None)
        if record.value is not None:
            show(record.value.number + 1)
    assert_type(AsyncConsumer(bootstrap, value_deserializer=IntSerde()), AsyncConsumer[bytes, int])
    share = ShareConsumer(bootstrap, group_id="g", value_deserializer=order_of)
    assert_type(share, ShareConsumer[bytes, Order])
    assert_type(share.poll()[0].value, Order | None)
    asynchronous = AsyncShareConsumer(bootstrap, group_id="g", key_deserializer=StrSerde())
    assert_type(asynchronous, AsyncShareConsumer[str, bytes])


def typed_retries(bootstrap: str) -> None:
    def handle(attempt: Attempt[bytes, Order]) -> None:
        show(attempt.value.number + 1)

    RetryingConsumer(bootstrap, "orders", handle, group_id="g", value_deserializer=order_of).run()


def failures(bootstrap: str) -> None:
    try:
        produce(bootstrap)
    except (OperationTimeout, BrokerUnreachable) as error:
        show(error.retriable)
    except MillstreamError as error:
        show(is_retriable(error))
    with EmbeddedBroker() as broker:
        produce(broker.bootstrap_servers)
