"""Groups of aiokafka and kafka-python, which share no code with librdkafka."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

aiokafka: Any = pytest.importorskip("aiokafka", reason="a client used only in tests")
kafka: Any = pytest.importorskip("kafka", reason="a client used only in tests")

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

VALUES = [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("instance_ids", [(None, None), ("one", "two")])
def test_aiokafka_members_share_a_topic(
    broker: str, topic: str, new_name: Callable[[str], str], instance_ids: tuple[Any, Any]
) -> None:
    group = new_name("group")

    async def consume(instance_id: str | None, found: list[bytes], is_done: asyncio.Event) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
        )
        async with consumer:
            while not is_done.is_set():
                batches = await consumer.getmany(timeout_ms=200)
                for records in batches.values():
                    found += [each.value for each in records]
                if batches:
                    await consumer.commit()
                if len(found) >= len(VALUES):
                    is_done.set()

    async def run() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker)
        async with producer:
            for number, value in enumerate(VALUES):
                await producer.send(topic, value, partition=number % 4)
        found: list[bytes] = []
        is_done = asyncio.Event()
        async with asyncio.timeout(60):
            await asyncio.gather(*(consume(each, found, is_done) for each in instance_ids))
        return found

    assert sorted(asyncio.run(run())) == sorted(VALUES)


def test_aiokafka_transforms_exactly_once(
    broker: str, topic: str, new_name: Callable[[str], str]
) -> None:
    group, target = new_name("group"), new_name("target")

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker) as plain:
            for value in VALUES:
                await plain.send(topic, value, partition=0)
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker, transactional_id=new_name("transaction")
        )
        done = 0
        async with consumer, producer:
            while done < len(VALUES):
                batches = await consumer.getmany(timeout_ms=500, max_records=20)
                offsets = {where: got[-1].offset + 1 for where, got in batches.items() if got}
                if not offsets:
                    continue
                async with producer.transaction():
                    for records in batches.values():
                        for each in records:
                            await producer.send(target, each.value + b"!")
                            done += 1
                    await producer.send_offsets_to_transaction(offsets, group)
        reader = aiokafka.AIOKafkaConsumer(
            target,
            bootstrap_servers=broker,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        found: list[bytes] = []
        async with reader, asyncio.timeout(60):
            while len(found) < len(VALUES):
                for records in (await reader.getmany(timeout_ms=500)).values():
                    found += [each.value for each in records]
        return found

    assert asyncio.run(run()) == [value + b"!" for value in VALUES]


def test_kafka_python_members_share_a_topic(
    broker: str, topic: str, new_name: Callable[[str], str]
) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker)
    for number, value in enumerate(VALUES):
        producer.send(topic, value, partition=number % 4)
    producer.close(30)
    group = new_name("group")
    settings = {
        "bootstrap_servers": broker,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
    }
    with ExitStack() as stack:
        members = [
            stack.enter_context(closing(kafka.KafkaConsumer(topic, **settings))) for _ in range(2)
        ]
        for member in members:
            # A leader that joins before it has the metadata assigns nothing and leaves it so.
            assert member.partitions_for_topic(topic)
        found: list[bytes] = []
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 60_000
        while len(found) < len(VALUES) or not all(each.assignment() for each in members):
            assert clock.monotonic_ms() < deadline_ms
            for member in members:
                for records in member.poll(timeout_ms=100).values():
                    found += [each.value for each in records]
        assert set(found) == set(VALUES)
        for member in members:
            member.commit()
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker)
    offsets = (
        admin.list_group_offsets([group])[group]
        if hasattr(admin, "list_group_offsets")
        else admin.list_consumer_group_offsets(group)
    )
    assert sum(each.offset for each in offsets.values()) == len(VALUES)
    admin.close()
