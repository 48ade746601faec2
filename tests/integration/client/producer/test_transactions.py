"""Transactions against a real broker, in both versions: atomic, fenced, aborted on error."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from millstream import AsyncProducer, Producer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.client.producer.transactions.manager import TransactionManager
from millstream.client.producer.transactions.state import State
from millstream.errors import (
    ConcurrentTransactions,
    FatalProducerError,
    InvalidTxnState,
    MessageTooLarge,
    NotCoordinator,
    OperationTimeout,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
)
from tests.integration.client.producer.reading import confluent_kafka, read_all
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.testing import EmbeddedBroker

pytestmark = pytest.mark.integration


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Which version of transactions the producer uses; brokers of version 2 serve both."""
    if request.param == 1:
        monkeypatch.setattr(TransactionManager, "_is_implicit_now", lambda self: None)
    return int(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A transactional id of the test's own."""
    return str(request.node.name)


def values(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    """What those see who read committed records."""
    return [each.value for each in read_all(broker.bootstrap_servers, topic, committed=True)]


def committed_offset(broker: EmbeddedBroker, group: str, topic: str) -> int:
    """How far a group is, by another client."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    )
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=10)
    finally:
        consumer.close()
    return int(found.offset)


@pytest.mark.usefixtures("version")
def test_committed_records_and_offsets_appear_together(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic, other = make_topic(2), make_topic()

    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        for number in range(3):
            with producer.transaction():
                for partition in (0, 1):
                    producer.send(topic, b"%d" % number, partition=partition)
                producer.send_offsets_to_transaction(
                    {TopicPartition(other, 0): OffsetAndMetadata(number + 1, "note")}, name
                )

    assert values(broker, topic) == [b"0", b"1", b"2"] * 2
    assert committed_offset(broker, name, other) == 3


@pytest.mark.usefixtures("version")
def test_what_a_block_that_raises_has_sent_is_never_seen(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()

    with Producer(broker.bootstrap_servers, transactional_id=name, linger=0) as producer:
        waiting = []

        def fail_inside() -> None:
            with producer.transaction():
                producer.send(topic, b"sent").result(10)
                waiting.append(producer.send(topic, b"perhaps not sent"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_inside()
        assert waiting[0].done()
        with producer.transaction():
            producer.send(topic, b"kept")

    assert values(broker, topic) == [b"kept"]


@pytest.mark.usefixtures("version")
def test_empty_transactions_cost_nothing_and_work(broker: EmbeddedBroker, name: str) -> None:
    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction()


@pytest.mark.usefixtures("version")
def test_a_lost_record_makes_the_commit_fail_and_the_next_transaction_work(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic(max_message_bytes="1000")

    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send(topic, b"fine")
        lost = producer.send(topic, b"x" * 2000)
        with pytest.raises(TransactionAborted, match="must be aborted"):
            producer.commit_transaction()
        assert isinstance(lost.exception(0), MessageTooLarge)
        with pytest.raises(TransactionAborted):
            producer.send(topic, b"too late")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next")

    assert values(broker, topic) == [b"next"]


@pytest.mark.usefixtures("version")
def test_a_newer_producer_shuts_the_older_one_out(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()
    old = Producer(broker.bootstrap_servers, transactional_id=name)
    with old.transaction():
        old.send(topic, b"old")
    old.begin_transaction()
    old.send(topic, b"zombie").result(10)

    with Producer(broker.bootstrap_servers, transactional_id=name) as new:
        with new.transaction():
            new.send(topic, b"new")
        with pytest.raises(FatalProducerError):
            old.commit_transaction()
        with pytest.raises(ProducerFenced):
            old.send(topic, b"zombie")
        with pytest.raises(ProducerFenced):
            old.begin_transaction()
        old.close()

    assert values(broker, topic) == [b"old", b"new"]


@pytest.mark.usefixtures("version")
def test_faults_on_the_way_are_not_seen(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()

    with Producer(broker.bootstrap_servers, transactional_id=name, retry_backoff=0.01) as producer:
        broker.faults.fail("InitProducerId", ConcurrentTransactions, times=2)
        producer.init_transactions()
        for number in range(4):
            broker.faults.fail("EndTxn", NotCoordinator, times=1)
            broker.faults.drop("Produce", times=1, after_handling=number % 2 == 0)
            broker.faults.drop("EndTxn", times=1, after_handling=number % 2 == 1)
            with producer.transaction():
                producer.send(topic, b"%d" % number)

    assert values(broker, topic) == [b"0", b"1", b"2", b"3"]


def test_a_broker_may_say_that_a_transaction_can_only_be_aborted(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()

    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send(topic, b"first").result(10)
        broker.faults.fail("Produce", TransactionAbortable, times=1)
        producer.send(topic, b"second")
        with pytest.raises(TransactionAborted):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"third")

    assert values(broker, topic) == [b"third"]


def test_calls_in_the_wrong_order_say_what_to_do(broker: EmbeddedBroker, name: str) -> None:
    with (
        Producer(broker.bootstrap_servers) as producer,
        pytest.raises(InvalidTxnState, match="transactional_id"),
    ):
        producer.begin_transaction()
    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        with pytest.raises(InvalidTxnState, match="begin a transaction first"):
            producer.send("t", b"v")
        producer.begin_transaction()
        with pytest.raises(InvalidTxnState, match="end what is under way first"):
            producer.begin_transaction()


@contextmanager
def impatient(producer: Producer | AsyncProducer) -> Iterator[None]:
    """Within the block, calls wait for a moment only."""
    patience_ms, producer._max_block_ms = producer._max_block_ms, 100
    try:
        yield
    finally:
        producer._max_block_ms = patience_ms


def wait_until_ready(producer: Producer | AsyncProducer) -> None:
    manager = producer._core.require_transactions()
    until(lambda: manager.state is State.READY, lambda: f"the producer is {manager.state.value}")


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("is_over", [False, True])
def test_a_commit_that_took_too_long_is_asked_for_again(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str, *, is_over: bool
) -> None:
    topic = make_topic()
    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send(topic, b"a").result(30)
        with broker.faults.unavailable(), impatient(producer):
            with pytest.raises(OperationTimeout, match=r"call commit_transaction\(\) again"):
                producer.commit_transaction()
            with pytest.raises(InvalidTxnState, match=r"call commit_transaction\(\) again"):
                producer.abort_transaction()
            with pytest.raises(InvalidTxnState, match=r"call commit_transaction\(\) again"):
                producer.begin_transaction()
        if is_over:
            wait_until_ready(producer)
            with pytest.raises(InvalidTxnState, match=r"call commit_transaction\(\) again"):
                producer.abort_transaction()
        producer.commit_transaction()
        with pytest.raises(InvalidTxnState, match="begin a transaction first"):
            producer.commit_transaction()
        with producer.transaction():
            producer.send(topic, b"b")

    assert values(broker, topic) == [b"a", b"b"]


@pytest.mark.parametrize("is_over", [False, True])
def test_an_abort_that_took_too_long_is_asked_for_again_in_an_event_loop(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str, *, is_over: bool
) -> None:
    topic = make_topic()

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap_servers, transactional_id=name) as producer:
            await producer.begin_transaction()
            await (await producer.send(topic, b"never"))
            with broker.faults.unavailable(), impatient(producer):
                with pytest.raises(OperationTimeout, match=r"call abort_transaction\(\) again"):
                    await producer.abort_transaction()
                with pytest.raises(InvalidTxnState, match=r"call abort_transaction\(\) again"):
                    await producer.commit_transaction()
            if is_over:
                await asyncio.to_thread(wait_until_ready, producer)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"b")

    asyncio.run(asyncio.wait_for(main(), 60))

    assert values(broker, topic) == [b"b"]


def test_closing_aborts_an_open_transaction(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic()

    with Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(10)

    assert values(broker, topic) == []


def test_sends_of_several_threads_are_in_one_transaction(
    broker: EmbeddedBroker, make_topic: Callable[..., str], name: str
) -> None:
    topic = make_topic(3)

    with (
        Producer(broker.bootstrap_servers, transactional_id=name) as producer,
        producer.transaction(),
    ):

        def send(thread: int) -> None:
            for number in range(200):
                producer.send(topic, b"%d-%d" % (thread, number))

        threads = [threading.Thread(target=send, args=(each,)) for each in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    assert len(values(broker, topic)) == 600
