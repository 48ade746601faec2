"""Namespaces on one cluster do not mix, and records that fail are tried again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    RetryingConsumer,
    read_topic,
)
from millstream.client.retrying.async_consumer import AsyncRetryingConsumer
from millstream.errors import UnknownTopicOrPartition
from tests.behaviours.clusters import at
from tests.behaviours.polling import poll_until, read, read_async, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import OffsetAndMetadata, TopicPartition
    from millstream.client.retrying.attempt import Attempt
    from tests.behaviours.clusters import Cluster

IDLE_SECONDS = 3.0
"""Longer than Apache Kafka takes from the end of a transaction to its readers."""


def test_a_namespace_sees_its_own_topics_groups_and_transactions(cluster: Cluster) -> None:
    namespace, topic = cluster.new_name("env"), cluster.new_name("orders")
    group = cluster.new_name("billing")
    own: Any = {"namespace": namespace}
    cluster.topic(name=topic)
    cluster.write(topic, [b"production"])

    with Admin(cluster.address, **own) as admin, Admin(cluster.address) as everything:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        with (
            Producer(cluster.address, transactional_id="t", **own) as producer,
            producer.transaction(),
        ):
            place = producer.send(topic, b"staging")
        assert place.result(0).topic == topic
        with Consumer(
            cluster.address, topic, group_id=group, auto_offset_reset="earliest", **own
        ) as consumer:
            records = read(consumer, 1)
            assert {each.topic for each in records} == {topic}
            assert consumer.assignment() == set(at(topic))
            assert values(records) == [b"staging"]
        assert [each.name for each in admin.list_topics()] == [topic]
        assert [each.group_id for each in admin.list_groups()] == [group]
        assert f"{namespace}.{group}" in {each.group_id for each in everything.list_groups()}
        assert {topic, f"{namespace}.{topic}"} <= {each.name for each in everything.list_topics()}
        table = read_topic(cluster.address, topic, isolation_level="read_committed", **own)
        assert table.to_arrow()["value"].to_pylist() == [b"staging"]
        with pytest.raises(UnknownTopicOrPartition):
            read_topic(cluster.address, f"{topic}-elsewhere", **own)


def test_what_fails_is_tried_again_and_given_up_in_the_end(cluster: Cluster) -> None:
    topic, group = cluster.filled(4), cluster.new_name("g")
    attempts: dict[bytes, int] = {}

    def handle(attempt: Attempt) -> None:
        attempts[attempt.value] = attempt.number
        if attempt.value == b"v1" or (attempt.value == b"v2" and attempt.number == 1):
            raise ValueError(attempt.value)

    counts = RetryingConsumer(
        cluster.address, topic, handle, group_id=group, retry_delays=(0.1,)
    ).run(idle_timeout=2.0)

    assert attempts == {b"v0": 1, b"v1": 2, b"v2": 2, b"v3": 1}
    assert (counts.handled, counts.retried, counts.dead) == (3, 2, 1)


def test_offsets_are_committed_with_the_records_of_a_namespace(cluster: Cluster) -> None:
    source, group = cluster.new_name("in"), cluster.new_name("g")
    own: Any = {"namespace": cluster.new_name("env")}
    (partition,) = at(source)
    reads: Any = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Admin(cluster.address, **own) as admin:
        admin.create_topic(source, partitions=1, replication_factor=1)
    cluster.write(source, [b"a", b"b"], **own)

    with (
        Consumer(cluster.address, source, **reads, **own) as consumer,
        Producer(cluster.address, transactional_id="blocking", **own) as producer,
    ):
        read(consumer, 2)
        assert consumer.group_metadata().group_id == group
        with producer.transaction():
            producer.send_offsets_to_transaction({partition: 1}, consumer.group_metadata())
        # Old brokers show them when their marker is written, after the end of the transaction.
        poll_until(lambda: offset_in(consumer.committed([partition])) == 1, consumer)

    async def main() -> None:
        async with (
            AsyncConsumer(cluster.address, source, **reads, **own) as consumer,
            AsyncProducer(cluster.address, transactional_id="asyncio", **own) as producer,
        ):
            await read_async(consumer, 1)
            async with producer.transaction():
                group = consumer.group_metadata()
                await producer.send_offsets_to_transaction({partition: 2}, group)
            while offset_in(await consumer.committed([partition])) != 2:
                await consumer.poll(0.05)

    asyncio.run(asyncio.wait_for(main(), 60))


def offset_in(committed: dict[TopicPartition, OffsetAndMetadata | None]) -> int | None:
    (found,) = committed.values()
    return None if found is None else found.offset


def run_blocking(address: str, topic: str, handle: Callable[[Attempt], None], **more: Any) -> Any:
    return RetryingConsumer(address, topic, handle, **more).run(idle_timeout=IDLE_SECONDS)


def run_asyncio(address: str, topic: str, handle: Callable[[Attempt], None], **more: Any) -> Any:
    async def handle_in_a_loop(attempt: Attempt) -> None:
        handle(attempt)

    consumer = AsyncRetryingConsumer(address, topic, handle_in_a_loop, **more)
    return asyncio.run(asyncio.wait_for(consumer.run(idle_timeout=IDLE_SECONDS), 60))


@pytest.mark.parametrize("run", [run_blocking, run_asyncio])
def test_retries_of_a_namespace_may_be_transactions(
    cluster: Cluster, run: Callable[..., Any]
) -> None:
    topic = cluster.new_name("jobs")
    own: Any = {"namespace": cluster.new_name("env")}
    with Admin(cluster.address, **own) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=1)
    cluster.write(topic, [b"a", b"b"], **own)

    def fail(attempt: Attempt) -> None:
        raise ValueError(attempt.value)

    settings = {"group_id": "g", "retry_delays": (0.1,), "transactional_id": "retries"}
    counts = run(cluster.address, topic, fail, common=own, **settings)

    assert (counts.handled, counts.retried, counts.dead) == (0, 2, 2)
