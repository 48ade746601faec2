"""`AsyncConsumer` with a real broker: the same behaviour, in an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import AsyncConsumer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import ClientClosed, ConcurrentUse, Wakeup

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from millstream.records.kernel import ConsumerRecord
    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration

PATIENCE = 20.0


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(bounded())


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = await consumer.poll(PATIENCE)
        assert records
        found += records
    return found


def test_reads_and_goes_on_where_it_left_off(topics: Topics) -> None:
    topic = topics.make(10)
    settings: Any = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}
    at = TopicPartition(topic, 0)

    async def main() -> None:
        async with AsyncConsumer(topics.bootstrap, topic, **settings) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 4:
                    break
            assert await consumer.position(at) == 4
            await consumer.commit()
            assert await consumer.committed([at]) == {at: OffsetAndMetadata(4, leader_epoch=0)}
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 6:
                    break
            assert seen == [b"v%d" % each for each in range(6)]
        async with AsyncConsumer(topics.bootstrap, topic, **settings) as consumer:
            assert (await read(consumer, 4))[0].value == b"v6"

    run(main())


def test_everything_that_waits_is_a_coroutine(topics: Topics) -> None:
    topic = topics.make(6, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def main() -> None:
        async with AsyncConsumer(topics.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([first, second])
            batch = await consumer.poll_arrow(PATIENCE, columns=["value"])
            assert batch is not None
            assert batch.topic == topic
            consumer.seek_to_beginning()
            batches = [each async for each in consumer.batches(1.0)]
            assert sum(map(len, batches)) == 6
            assert await consumer.beginning_offsets([first]) == {first: 0}
            assert await consumer.end_offsets([first]) == {first: 3}
            assert await consumer.offsets_for_times({first: 1 << 50}) == {first: None}
            assert await consumer.lag(first) == 0
            await consumer.unsubscribe()
            assert not consumer.assignment()
            assert "AsyncConsumer" in repr(consumer)

    run(main())


def test_listeners_may_be_coroutines(topics: Topics) -> None:
    topic = topics.make(2)
    heard: list[str] = []

    class Listener:
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append("assigned")
            assert await consumer.committed(partitions) == dict.fromkeys(partitions)

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append("revoked")

    async def main() -> None:
        async with consumer:
            consumer.subscribe(topic, listener=Listener())
            await read(consumer, 2)

    consumer = AsyncConsumer(
        topics.bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest"
    )
    run(main())

    assert heard == ["assigned", "revoked"]


def test_waking_cancelling_and_sharing(topics: Topics) -> None:
    topic = topics.make()

    async def main() -> None:
        async with AsyncConsumer(topics.bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.position(TopicPartition(topic, 0))
            polling = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUse, match="another task"):
                await consumer.poll(0)
            consumer.wakeup()
            with pytest.raises(Wakeup):
                await polling
            cancelled = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            topics.write(topic, [b"after"])
            assert [each.value for each in await consumer.poll(PATIENCE)] == [b"after"]
        with pytest.raises(ClientClosed):
            await consumer.poll()

    run(main())


def test_a_loop_is_free_while_a_consumer_waits(topics: Topics) -> None:
    topic = topics.make()

    async def main() -> None:
        async with AsyncConsumer(topics.bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.position(TopicPartition(topic, 0))
            polling = asyncio.create_task(consumer.poll(PATIENCE))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not polling.done()
            topics.write(topic, [b"v"])
            assert [each.value for each in await polling] == [b"v"]

    run(main())


def test_a_timeout_is_an_error_that_says_what_was_waited_for() -> None:
    async def main() -> None:
        async with AsyncConsumer("127.0.0.1:1", group_id="g") as consumer:
            with pytest.raises(Exception, match=r"no broker reachable|no answer"):
                await consumer.committed([TopicPartition("orders", 0)], timeout=0.5)

    run(main())
