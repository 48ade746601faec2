"""A client whose I/O thread dies of a fault of ours: everybody who waits hears of it.

Nothing answers here: a socket listens and is silent, so that every call waits until the fault.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from millstream import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from millstream.errors import ClientClosed, DeliveryFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from millstream.client.consumer.session import ConsumerSession
    from millstream.client.futures import Waiter
    from millstream.client.runtime import ClientRuntime
    from millstream.client.share_consumer.share_session import ShareSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

PLACE = TopicPartition("topic", 0)
CAUSE = "has failed: MemoryError\\('a fault of ours'\\)"


class Fault:
    """An actor that raises as soon as somebody waits."""

    def __init__(self, is_time: Callable[[], Any]) -> None:
        self._is_time = is_time

    def poll(self, now_ms: int) -> int | None:
        if self._is_time():
            raise MemoryError("a fault of ours")
        return now_ms + 1


def break_when(runtime: ClientRuntime, is_time: Callable[[], Any]) -> None:
    runtime.post(lambda _now_ms: runtime.add(Fault(is_time)))


def break_when_waited_for(runtime: ClientRuntime) -> None:
    break_when(runtime, lambda: runtime._waiting)


def break_when_blocked(session: ConsumerSession | ShareSession) -> None:
    condition: Any = session.buffer._condition
    break_when(session.runtime, lambda: condition._waiters)


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def producer(silent: str) -> Iterator[Producer]:
    made = Producer(silent, linger=60.0, transactional_id=None)
    made._core.accumulator.set_topic("topic", 1, [0])
    yield made
    made.close()


@pytest.fixture
def consumer(silent: str) -> Iterator[Consumer]:
    made = Consumer(silent, group_id="group")
    yield made
    made.close()
    assert not made._session.thread._thread.is_alive()


@pytest.fixture
def share_consumer(silent: str) -> Iterator[ShareConsumer]:
    made = ShareConsumer(silent, "topic", group_id="group")
    yield made
    made.close()


# ---- the producer ----


def test_a_delivery_without_a_timeout_ends_with_the_cause(producer: Producer) -> None:
    deliveries = [producer.send("topic", b"value") for _ in range(3)]
    break_when(producer._core.runtime, lambda: True)

    for delivery in deliveries:
        with pytest.raises(ClientClosed, match=CAUSE) as raised:
            delivery.result()
        assert isinstance(raised.value.__cause__, MemoryError)
    with pytest.raises(ClientClosed, match=CAUSE):
        producer.send("topic", b"value")
    with pytest.raises(ClientClosed, match=CAUSE):
        producer.flush()


def test_a_flush_that_waits_raises_for_what_was_lost(producer: Producer) -> None:
    producer.send("topic", b"value")
    break_when(producer._core.runtime, lambda: producer._core.accumulator._flushes)

    with pytest.raises(DeliveryFailed, match=CAUSE):
        producer.flush()


def test_a_close_that_drains_ends_and_raises_for_what_was_lost(producer: Producer) -> None:
    producer.send("topic", b"value")
    break_when(producer._core.runtime, lambda: producer._core.accumulator._flushes)

    with pytest.raises(DeliveryFailed, match=CAUSE):
        producer.close()
    assert not producer._core.io._thread.is_alive()


def test_callbacks_are_called_for_records_that_the_fault_has_lost(producer: Producer) -> None:
    errors = []
    producer.send("topic", b"v", on_delivery=lambda delivery: errors.append(delivery.exception(0)))
    break_when(producer._core.runtime, lambda: True)
    producer.close()

    assert [type(each) for each in errors] == [ClientClosed]


def test_a_send_that_waits_for_its_topic_ends_with_the_cause(producer: Producer) -> None:
    break_when_waited_for(producer._core.runtime)

    with pytest.raises(ClientClosed, match=CAUSE):
        producer.send("unknown", b"value")


def test_a_send_that_waits_for_memory_ends_with_the_cause(silent: str) -> None:
    producer = Producer(silent, linger=60.0, buffer_memory=32_768, batch_size=16_384)
    accumulator = producer._core.accumulator
    accumulator.set_topic("topic", 4, range(4))
    break_when(producer._core.runtime, lambda: accumulator._pool.has_waiters)

    sent = (producer.send("topic", b"v" * 15_000, partition=each) for each in range(4))
    with pytest.raises(ClientClosed, match=CAUSE):
        list(sent)
    with pytest.raises(DeliveryFailed, match=CAUSE):
        producer.close()


def test_transactions_that_wait_end_with_the_cause(silent: str) -> None:
    producer = Producer(silent, transactional_id="transactional")
    break_when_waited_for(producer._core.runtime)

    with pytest.raises(ClientClosed, match=CAUSE):
        producer.init_transactions()
    producer.close()


def _is_awaited(producer: AsyncProducer) -> bool:
    return any(each.wakeups for each in producer._core.accumulator.incomplete())


async def in_time(awaited: Awaitable[object]) -> None:
    async with asyncio.timeout(30):
        await awaited


def test_an_async_producer_ends_every_wait_with_the_cause(silent: str) -> None:
    async def run() -> None:
        producer = AsyncProducer(silent, linger=60.0)
        producer._core.accumulator.set_topic("topic", 1, [0])
        delivery = await producer.send("topic", b"value")
        await producer.send("topic", b"value")
        break_when(producer._core.runtime, lambda: producer._core.accumulator._flushes)
        with pytest.raises(DeliveryFailed, match=CAUSE):
            await in_time(producer.flush())
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(delivery)
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(producer.partitions_for("unknown"))
        await in_time(producer.close())

    asyncio.run(run())


def test_an_awaited_delivery_ends_with_the_cause(silent: str) -> None:
    async def run() -> None:
        producer = AsyncProducer(silent, linger=60.0)
        producer._core.accumulator.set_topic("topic", 1, [0])
        delivery = await producer.send("topic", b"value")
        break_when(producer._core.runtime, lambda: _is_awaited(producer))
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(delivery)
        await in_time(producer.close())

    asyncio.run(run())


# ---- the consumers ----


def test_a_poll_without_a_timeout_ends_with_the_cause(consumer: Consumer) -> None:
    consumer.assign([PLACE])
    break_when_blocked(consumer._session)

    with pytest.raises(ClientClosed, match=CAUSE):
        consumer.poll(None)
    with pytest.raises(ClientClosed, match=CAUSE):
        consumer.poll(None)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda consumer: consumer.end_offsets([PLACE]), id="end_offsets"),
        pytest.param(lambda consumer: consumer.committed([PLACE]), id="committed"),
        pytest.param(lambda consumer: consumer.commit({PLACE: 1}), id="commit"),
    ],
)
def test_a_question_of_a_consumer_ends_with_the_cause(
    consumer: Consumer, call: Callable[[Consumer], object]
) -> None:
    break_when_waited_for(consumer._session.runtime)

    with pytest.raises(ClientClosed, match=CAUSE):
        call(consumer)


def test_a_position_that_is_waited_for_ends_with_the_cause(consumer: Consumer) -> None:
    consumer.assign([PLACE])
    break_when_blocked(consumer._session)

    with pytest.raises(ClientClosed, match=CAUSE):
        consumer.position(PLACE, timeout=3600)


def test_a_consumer_that_leaves_its_group_is_closed_all_the_same(consumer: Consumer) -> None:
    consumer.subscribe(["topic"])
    break_when_waited_for(consumer._session.runtime)

    consumer.close(timeout=3600)
    assert not consumer._session.thread._thread.is_alive()


def test_an_async_consumer_ends_every_wait_with_the_cause(silent: str) -> None:
    async def run() -> None:
        consumer = AsyncConsumer(silent, group_id="group")
        consumer.assign([PLACE])
        session = consumer._session
        break_when(session.runtime, lambda: session.buffer._on_change)
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(consumer.poll(None))
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(consumer.end_offsets([PLACE]))
        await in_time(consumer.close())

    asyncio.run(run())


def test_a_share_consumer_ends_every_wait_with_the_cause(share_consumer: ShareConsumer) -> None:
    break_when_blocked(share_consumer._session)

    with pytest.raises(ClientClosed, match=CAUSE):
        share_consumer.poll(None)
    with pytest.raises(ClientClosed, match=CAUSE):
        share_consumer.commit()


def test_an_async_share_consumer_ends_every_wait_with_the_cause(silent: str) -> None:
    async def run() -> None:
        consumer = AsyncShareConsumer(silent, "topic", group_id="group")
        session = consumer._session
        break_when(session.runtime, lambda: session.buffer._on_change)
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(consumer.poll(None))
        with pytest.raises(ClientClosed, match=CAUSE):
            await in_time(consumer.commit())
        await in_time(consumer.close())

    asyncio.run(run())


# ---- the administration ----


def test_an_admin_ends_every_call_with_the_cause(silent: str) -> None:
    with Admin(silent) as admin:
        break_when_waited_for(admin._thread.runtime)
        for _ in range(2):
            with pytest.raises(ClientClosed, match=CAUSE):
                admin.list_topics()


def test_an_async_admin_ends_every_call_with_the_cause(silent: str) -> None:
    async def run() -> None:
        async with AsyncAdmin(silent) as admin:
            break_when_waited_for(admin._thread.runtime)
            for _ in range(2):
                with pytest.raises(ClientClosed, match=CAUSE):
                    await in_time(admin.list_topics())

    asyncio.run(run())


# ---- what dies on the way ----


def test_a_part_that_fails_at_the_end_keeps_no_other_from_ending(producer: Producer) -> None:
    runtime = producer._core.runtime
    delivery = producer.send("topic", b"value")

    def fail(error: ClientClosed) -> None:
        raise RuntimeError("at the end")

    runtime._closing.insert(0, fail)
    waiter: Waiter[None] = runtime.waiter("something")

    def last(_now_ms: int) -> None:
        raise MemoryError("a fault of ours")

    runtime.post(last)
    for wait in (delivery.result, waiter.result):
        with pytest.raises(ClientClosed, match=CAUSE):
            wait()


def test_a_producer_that_was_only_stopped_leaves_no_delivery_open(producer: Producer) -> None:
    delivery = producer.send("topic", b"value")
    producer._core.io.stop()

    with pytest.raises(ClientClosed, match="closed"):
        delivery.result()
