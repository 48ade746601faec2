"""`AsyncProducer` against a real broker: nothing blocks the loop, one wake-up per batch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from millstream import AsyncProducer
from millstream.errors import (
    BootstrapFailed,
    BufferExhausted,
    ClientClosed,
    DeliveryFailed,
    InvalidTopic,
    MessageTooLarge,
    OperationTimeout,
)
from tests.integration.client.producer.reading import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import Delivery
    from millstream.testing import EmbeddedBroker

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.integration


def test_a_record_is_sent_and_its_place_awaited(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers) as producer:
            delivery = await producer.send(topic, b"v", key=b"k", headers={"h": b"1"})
            assert (await delivery).offset == 0
            assert delivery.done()
            assert (await delivery).offset == 0
            assert len(await producer.partitions_for(topic)) == 1

    asyncio.run(main())

    (seen,) = read_all(broker.bootstrap_servers, topic)
    assert (seen.key, seen.value, seen.headers) == (b"k", b"v", [("h", b"1")])


def test_many_waits_for_one_batch_wake_the_loop_once(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    wakeups = 0

    async def main() -> None:
        nonlocal wakeups
        async with AsyncProducer(broker.bootstrap_servers, linger=0.05) as producer:
            await (await producer.send(topic, b"first"))
            deliveries = [await producer.send(topic, b"%d" % n) for n in range(500)]
            loop = asyncio.get_running_loop()
            call = loop.call_soon_threadsafe

            def count(*arguments: Any, **keywords: Any) -> Any:
                nonlocal wakeups
                wakeups += 1
                return call(*arguments, **keywords)

            loop.call_soon_threadsafe = count  # type: ignore[assignment]  # To count the calls.
            places = await asyncio.gather(*deliveries)
            assert [each.offset for each in places] == list(range(1, 501))

    asyncio.run(main())

    assert wakeups <= 3, f"{wakeups} wake-ups for 500 records in one batch or two"


def test_memory_is_awaited_and_the_loop_goes_on(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    async def main() -> None:
        async with AsyncProducer(
            broker.bootstrap_servers, buffer_memory=20_000, batch_size=5_000
        ) as producer:
            for _ in range(50):
                await producer.send(topic, b"x" * 1000)
            await producer.flush()
            with broker.faults.unavailable():
                sending = [
                    asyncio.create_task(producer.send(topic, b"x" * 4000)) for _ in range(10)
                ]
                _, waiting = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                assert waiting
            await asyncio.gather(*sending)

    asyncio.run(main())


def test_memory_is_not_awaited_for_good(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    async def main() -> None:
        async with AsyncProducer(
            broker.bootstrap_servers, buffer_memory=20_000, batch_size=5_000, max_block=0.2
        ) as producer:
            await until_known(producer, topic)
            with broker.faults.unavailable(), pytest.raises(BufferExhausted):
                await asyncio.gather(*(producer.send(topic, b"x" * 4000) for _ in range(10)))

    asyncio.run(main())


async def until_known(producer: AsyncProducer, topic: str) -> None:
    """On a busy machine that may take longer than the producer waits."""
    while True:
        with suppress(OperationTimeout):
            await producer.partitions_for(topic)
            return


def test_a_table(broker: EmbeddedBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers) as producer:
            table = pa.table({"key": [b"a", b"b"] * 500, "value": [b"v"] * 1000})
            places = await (await producer.send_batch(topic, table))
            assert sum(each.record_count for each in places) == 1000

    asyncio.run(main())

    assert len(read_all(broker.bootstrap_servers, topic)) == 1000


def test_callbacks_have_run_when_flush_returns_and_the_loop_goes_on_meanwhile(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    calls: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def look(delivery: Delivery) -> None:
            calls.append((await delivery).offset)

        def note(delivery: Delivery) -> None:
            # A loop that waited for this thread would never come to it.
            asyncio.run_coroutine_threadsafe(look(delivery), loop).result(30)

        async with AsyncProducer(broker.bootstrap_servers) as producer:
            for _ in range(50):
                await producer.send(topic, b"v", on_delivery=note)
            await producer.flush()
            assert calls == list(range(50))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_flush_within_a_callback_does_not_wait_for_itself(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    flushed: list[bool] = []

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers) as producer:

            def flush_here(delivery: Delivery) -> None:
                asyncio.run(asyncio.wait_for(producer.flush(), 30))
                flushed.append(True)

            await producer.send(topic, b"v", on_delivery=flush_here)
            await producer.flush()
            assert flushed == [True]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_losses_and_timeouts_are_told(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes="1000")

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers, max_block=0.5) as producer:
            await until_known(producer, topic)
            delivery = await producer.send(topic, b"x" * 2000)
            with pytest.raises(MessageTooLarge):
                await delivery
            await producer.flush()
            await producer.send(topic, b"x" * 2000)
            with pytest.raises(DeliveryFailed):
                await producer.flush()
            with pytest.raises(InvalidTopic):
                await producer.send("no/good", b"v")
            with broker.faults.unavailable():
                waiting = await producer.send(topic, b"v")
                with pytest.raises(OperationTimeout):
                    await producer.flush(timeout=0.1)
            assert (await waiting).offset == 0
        with pytest.raises(ClientClosed):
            await producer.send(topic, b"v")

    asyncio.run(main())


def test_without_a_broker_the_error_names_the_address() -> None:
    async def main() -> None:
        async with AsyncProducer("127.0.0.1:1", max_block=1) as producer:
            with pytest.raises(BootstrapFailed, match=r"127\.0\.0\.1:1"):
                await producer.send("t", b"v")

    asyncio.run(main())


def test_two_loops_may_share_a_producer(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producers: list[AsyncProducer] = []

    async def first() -> None:
        producers.append(AsyncProducer.from_config({"bootstrap.servers": broker.bootstrap_servers}))
        await (await producers[0].send(topic, b"1"))

    async def second() -> None:
        await (await producers[0].send(topic, b"2"))
        await producers[0].close()
        await producers[0].close()

    asyncio.run(first())
    asyncio.run(second())

    assert [each.value for each in read_all(broker.bootstrap_servers, topic)] == [b"1", b"2"]


def test_a_transaction_is_all_or_nothing(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    async def fail_inside(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped")
            raise ZeroDivisionError

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers, transactional_id="async") as producer:
            async with producer.transaction():
                await producer.send(topic, b"kept")
                await producer.send_offsets_to_transaction({}, "group")
            with pytest.raises(ZeroDivisionError):
                await fail_inside(producer)

    asyncio.run(main())

    seen = read_all(broker.bootstrap_servers, topic, committed=True)
    assert [each.value for each in seen] == [b"kept"]
