"""`Producer` when things go wrong: refusals, broken connections, limits of time and of memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, AsyncProducer, Producer
from millstream.errors import (
    BootstrapFailed,
    BufferExhausted,
    DeliveryFailed,
    DeliveryTimeout,
    InvalidArgument,
    InvalidTopic,
    MessageTooLarge,
    NotLeaderOrFollower,
    OperationTimeout,
    UnknownTopicOrPartition,
)
from millstream.testing import EmbeddedBroker
from tests.integration.client.producer.reading import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.integration


def test_retriable_refusals_and_broken_connections_are_not_seen_by_the_sender(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    with Producer(broker.bootstrap_servers, retry_backoff=0.01) as producer:
        producer.send(topic, b"0").result(10)
        broker.faults.fail("Produce", NotLeaderOrFollower, times=2)
        broker.faults.drop("Produce", times=1, after_handling=True)
        broker.faults.drop("Produce", times=1)
        for number in range(1, 50):
            producer.send(topic, b"%d" % number)
            producer.flush() if number % 10 == 0 else None
        producer.flush(20)

    values = [each.value for each in read_all(broker.bootstrap_servers, topic)]
    assert values == [b"%d" % number for number in range(50)]


def test_a_batch_that_is_too_large_for_the_topic_is_sent_in_parts(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes="1000")

    with Producer(broker.bootstrap_servers, linger=0.05) as producer:
        sent = [producer.send(topic, b"%03d" % n + b"x" * 100) for n in range(100)]
        too_large = producer.send(topic, b"x" * 2000)
        after = producer.send(topic, b"after")
        offsets = [each.result(10).offset for each in sent]
        assert isinstance(too_large.exception(10), MessageTooLarge)
        assert after.result(10).offset == 100

    assert offsets == list(range(100))


def test_flush_raises_for_what_was_lost_unless_somebody_has_looked(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes="1000")

    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"x" * 2000)
        with pytest.raises(DeliveryFailed, match="1 record was not delivered") as caught:
            producer.flush()
        assert isinstance(caught.value.errors[0], MessageTooLarge)
        producer.flush()
        assert isinstance(producer.send(topic, b"x" * 2000).exception(10), MessageTooLarge)
        producer.flush()
        producer.send(topic, b"x" * 2000, on_delivery=lambda delivery: None)
        producer.flush()


def test_without_a_broker_the_error_names_the_address() -> None:
    with (
        Producer("127.0.0.1:1", max_block=1) as producer,
        pytest.raises(BootstrapFailed, match=r"127\.0\.0\.1:1"),
    ):
        producer.send("t", b"v")


def test_what_cannot_be_delivered_in_time_is_lost(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with Producer(
        broker.bootstrap_servers,
        delivery_timeout=3,
        request_timeout=1,
        linger=0,
        reconnect_backoff_max=0.05,
    ) as producer:
        producer.send(topic, b"v").result(10)
        with broker.faults.unavailable():
            assert isinstance(producer.send(topic, b"v").exception(10), DeliveryTimeout)
        assert producer.send(topic, b"w").result(10).topic == topic


def until_known(producer: Producer, topic: str) -> None:
    """On a busy machine that may take longer than the producer waits."""
    while True:
        with suppress(OperationTimeout):
            producer.partitions_for(topic)
            return


def test_a_full_buffer_makes_send_wait_and_then_raise(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with Producer(
        broker.bootstrap_servers, buffer_memory=20_000, max_block=1, batch_size=10_000
    ) as producer:
        until_known(producer, topic)
        with broker.faults.unavailable():
            for _ in range(18):
                producer.send(topic, b"x" * 1000)
            with pytest.raises(BufferExhausted, match="buffer_memory"):
                producer.send(topic, b"x" * 5000)
        producer.flush(20)


def test_topics_that_cannot_be_are_refused(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    with Producer(broker.bootstrap_servers, max_block=3) as producer:
        with pytest.raises(InvalidTopic, match="no/good"):
            producer.send("no/good", b"v")
        with pytest.raises(InvalidArgument, match="topic"):
            producer.send("", b"v")
        with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
            producer.send(make_topic(2), b"v", partition=7)
        with pytest.raises(InvalidArgument, match="must be a number of 0 or more"):
            producer.send("t", b"v", partition=-1)


def test_a_partition_that_a_topic_does_not_have_is_told_at_once(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    with Producer(broker.bootstrap_servers, max_block=3600) as producer:
        with pytest.raises(
            UnknownTopicOrPartition, match=f"{topic} has 2 partitions.* no partition 77"
        ):
            producer.send(topic, b"v", partition=77)

        async def main() -> None:
            async with AsyncProducer(broker.bootstrap_servers, max_block=3600) as other:
                with pytest.raises(UnknownTopicOrPartition, match="no partition 2"):
                    await other.send(topic, b"v", partition=2)

        asyncio.run(main())


def test_a_partition_that_is_new_is_found_at_once(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    with Producer(broker.bootstrap_servers) as producer, Admin(broker.bootstrap_servers) as admin:
        producer.send(topic, b"v").result(10)
        admin.create_partitions({topic: 4}).raise_first()

        assert producer.send(topic, b"v", partition=3).result(10).partition == 3


def test_a_topic_that_is_not_there_is_named_after_max_block() -> None:
    settings = {"auto.create.topics.enable": "false"}
    with (
        EmbeddedBroker(in_memory=True, settings=settings) as broker,
        Producer(broker.bootstrap_servers, max_block=2) as producer,
        pytest.raises(OperationTimeout, match=r"topic orders is not known .* check its name"),
    ):
        producer.send("orders", "v")
