"""A schema registry that takes its time holds up nobody but the record that needs the schema."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream import AsyncConsumer, AsyncProducer, AsyncShareConsumer, Consumer, Producer
from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.schema_registry import SchemaRegistryClient
from millstream.errors import RecordNotReadable
from millstream.testing import EmbeddedBroker
from tests.schema_registry import Registry, running_registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

PATIENCE = 20.0
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}


class SlowRegistry(Registry):
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def answer(self, method: str, path: str, body: dict[str, Any], form: str = "") -> Any:
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE)
        return super().answer(method, path, body, form)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SETTINGS, in_memory=True) as running:
        yield running


@pytest.fixture
def registry() -> Iterator[SlowRegistry]:
    slow = SlowRegistry()
    with running_registry(slow):
        yield slow
        slow.may_answer.set()


def serde(registry: Registry) -> AvroSerde[Any]:
    """One with nothing remembered."""
    return AvroSerde(SchemaRegistryClient(registry.url), SCHEMA)


async def while_asked(registry: SlowRegistry, call: Awaitable[Any]) -> Any:
    """What a call gives whose registry answers only after the loop has gone on for a while."""
    task = asyncio.ensure_future(call)
    assert await asyncio.to_thread(registry.is_asked.wait, PATIENCE)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not task.done()
    registry.may_answer.set()
    return await asyncio.wait_for(task, PATIENCE)


def written(broker: EmbeddedBroker, registry: SlowRegistry, topic: str) -> None:
    """One record in a topic; the registry is slow again afterwards."""
    broker.create_topic(topic, partitions=1)
    registry.may_answer.set()
    with Producer(broker.bootstrap_servers, value_serializer=serde(registry)) as producer:
        producer.send(topic, {"id": 7})
    registry.may_answer.clear()
    registry.is_asked.clear()


def test_an_asyncio_producer_leaves_its_loop_free(
    broker: EmbeddedBroker, registry: SlowRegistry
) -> None:
    broker.create_topic("sent", partitions=1)

    async def main() -> None:
        producer = AsyncProducer(broker.bootstrap_servers, value_serializer=serde(registry))
        async with producer:
            delivery = await while_asked(registry, producer.send("sent", {"id": 7}))
            assert (await delivery).offset == 0

    asyncio.run(main())


def test_an_asyncio_consumer_leaves_its_loop_free(
    broker: EmbeddedBroker, registry: SlowRegistry
) -> None:
    written(broker, registry, "read")

    async def main() -> None:
        async with AsyncConsumer(
            broker.bootstrap_servers,
            "read",
            group_id="readers",
            auto_offset_reset="earliest",
            value_deserializer=serde(registry),
        ) as consumer:
            (record,) = await while_asked(registry, consumer.poll(PATIENCE))
            assert record.value == {"id": 7}

    asyncio.run(main())


def test_a_poll_that_is_cancelled_while_the_registry_is_asked_loses_nothing(
    broker: EmbeddedBroker, registry: SlowRegistry
) -> None:
    written(broker, registry, "cancelled")

    async def main() -> None:
        async with AsyncConsumer(
            broker.bootstrap_servers,
            "cancelled",
            group_id="cancelling",
            auto_offset_reset="earliest",
            value_deserializer=serde(registry),
        ) as consumer:
            poll = asyncio.ensure_future(consumer.poll(PATIENCE))
            assert await asyncio.to_thread(registry.is_asked.wait, PATIENCE)
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            registry.may_answer.set()
            (record,) = await consumer.poll(PATIENCE)
            assert (record.offset, record.value) == (0, {"id": 7})

    asyncio.run(main())


def test_an_asyncio_share_consumer_leaves_its_loop_free(
    broker: EmbeddedBroker, registry: SlowRegistry
) -> None:
    broker.create_topic("shared", partitions=1)

    async def main() -> None:
        async with AsyncShareConsumer(
            broker.bootstrap_servers,
            "shared",
            group_id="sharers",
            value_deserializer=serde(registry),
        ) as consumer:
            while consumer.acquisition_lock_timeout is None:
                await consumer.poll(0.1)
            await asyncio.to_thread(send_one)
            found = await while_asked(registry, consumer.poll(PATIENCE))
            assert [(each.value, each.delivery_count) for each in found] == [({"id": 7}, 1)]

    def send_one() -> None:
        registry.may_answer.set()
        with Producer(broker.bootstrap_servers, value_serializer=serde(registry)) as producer:
            producer.send("shared", {"id": 7})
        registry.may_answer.clear()
        registry.is_asked.clear()

    asyncio.run(main())


def test_a_registry_that_refuses_names_the_record(
    broker: EmbeddedBroker, registry: SlowRegistry
) -> None:
    written(broker, registry, "refused")
    registry.may_answer.set()
    registry.failures_left = 100
    deserializer: AvroSerde[Any] = AvroSerde(SchemaRegistryClient(registry.url, retries=0), SCHEMA)
    with Consumer(
        broker.bootstrap_servers,
        "refused",
        group_id="refusing",
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
    ) as consumer:
        with pytest.raises(RecordNotReadable, match=r"refused-0.*offset 0.*seek to 1"):
            consumer.poll(PATIENCE)
        registry.failures_left = 0

        (record,) = consumer.poll(PATIENCE)

    assert record.value == {"id": 7}
