"""`metrics()` of every client, against a broker."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

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
)
from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_memory=True) as running:
        running.create_topic("filled", partitions=2)
        with Producer(running.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("filled", b"x" * 100, partition=number % 2)
        yield running


def test_a_producer_counts_what_was_acknowledged(broker: EmbeddedBroker) -> None:
    with Producer(broker.bootstrap_servers, compression_type="gzip") as producer:
        for number in range(1000):
            producer.send("sent", b"v" * 100, key=b"%d" % number)
        producer.flush(PATIENCE)
        found = producer.metrics()

    assert (found.records_sent, found.records_failed) == (1000, 0)
    assert 0 < found.bytes_sent < 100_000, "what is sent is compressed"
    assert found.batches_sent >= 1
    assert found.record_rate > 0
    assert 0 < found.delivery_latency_avg <= found.delivery_latency_max
    assert (found.batches_incomplete, found.throttle_time) == (0, 0)
    assert found.requests["Produce"].count >= 1
    assert found.requests["Metadata"].latency_max >= 0


def test_batches_that_wait_are_the_queue(broker: EmbeddedBroker) -> None:
    with Producer(broker.bootstrap_servers, linger=60.0, delivery_timeout=120.0) as producer:
        producer.partitions_for("filled")
        producer.send("filled", b"x" * 1000)
        found = producer.metrics()

        assert (found.batches_incomplete, found.records_sent) == (1, 0)
        assert found.buffer_bytes >= 1000


def test_retries_and_throttling_are_counted(broker: EmbeddedBroker) -> None:
    broker.create_topic("troubled", partitions=1)
    broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    with Producer(broker.bootstrap_servers, retry_backoff=0.001) as producer:
        producer.send("troubled", b"v").result(PATIENCE)
        found = producer.metrics()

    assert found.retries >= 2
    assert found.records_sent == 1


def test_records_that_are_given_up_are_counted(broker: EmbeddedBroker) -> None:
    broker.create_topic("refusing", partitions=1)
    broker.faults.fail("Produce", "INVALID_RECORD", times=1)
    with Producer(broker.bootstrap_servers) as producer:
        assert producer.send("refusing", b"v").exception(PATIENCE) is not None
        assert producer.metrics().records_failed == 1


def test_a_consumer_counts_what_polls_gave(broker: EmbeddedBroker) -> None:
    with Consumer(
        broker.bootstrap_servers, "filled", group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        read = 0
        while read < 50:
            read += len(consumer.poll(PATIENCE, max_records=10))
        found = consumer.metrics()

    assert found.records_read == read
    assert found.bytes_fetched > 50 * 100
    assert found.buffered_bytes > 0, "both partitions were fetched whole"
    assert found.assigned_partitions == 2
    assert found.requests["Fetch"].count >= 1
    assert found.record_rate > 0


def test_rows_of_arrow_count_as_records(broker: EmbeddedBroker) -> None:
    with Consumer(
        broker.bootstrap_servers, "filled", group_id="arrows", auto_offset_reset="earliest"
    ) as consumer:
        batch = consumer.poll_arrow(PATIENCE)
        assert batch is not None
        assert consumer.metrics().records_read == len(batch)


def test_every_client_has_metrics(broker: EmbeddedBroker) -> None:
    address = broker.bootstrap_servers
    with Admin(address) as admin, ShareConsumer(address, "filled", group_id="s") as share:
        admin.describe_topics(["filled"]).raise_first()
        share.poll(0.05)
        assert sum(each.count for each in admin.metrics().requests.values()) > 0
        assert share.metrics().records_read == 0
        assert dataclasses.is_dataclass(share.metrics())

    async def main() -> None:
        async with (
            AsyncAdmin(address) as admin,
            AsyncProducer(address) as producer,
            AsyncConsumer(address, "filled", group_id="a") as consumer,
            AsyncShareConsumer(address, "filled", group_id="b") as share,
        ):
            await (await producer.send("sent", b"v"))
            assert producer.metrics().records_sent == 1
            assert consumer.metrics().records_read == 0
            assert share.metrics().records_read == 0
            assert admin.metrics().retries == 0

    asyncio.run(main())
