"""Calls at odd moments: beside a waiting fetch, before a group is formed, for what is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from millstream.errors import (
    GroupIdNotFound,
    InvalidArgument,
    MillstreamError,
    OperationTimeout,
    UnknownTopicOrPartition,
)
from tests.behaviours.clusters import at
from tests.behaviours.polling import poll_until, read, reader, values

if TYPE_CHECKING:
    from tests.behaviours.clusters import Cluster


def members_of(cluster: Cluster, group: str) -> int:
    """How many members a group has, none if there is no such group."""
    with Admin(cluster.address) as admin:
        found = admin.describe_groups([group])
    if isinstance(found.errors.get(group), GroupIdNotFound):
        return 0
    return len(found[group].members)


def test_a_commit_does_not_wait_for_a_fetch_that_waits_for_records(cluster: Cluster) -> None:
    topic, group = cluster.filled(10), cluster.new_name("g")
    with reader(
        cluster, topic, group_id=group, enable_auto_commit=False, fetch_max_wait=60.0
    ) as consumer:
        read(consumer, 10)
        assert not consumer.poll(0.2)  # By now a fetch waits at the broker, for a minute.

        consumer.commit(timeout=20.0)

        assert consumer.committed(at(topic), timeout=20.0)[at(topic)[0]].offset == 10  # type: ignore[union-attr]  # it is there


def test_assigned_partitions_go_on_from_what_their_group_committed(cluster: Cluster) -> None:
    topic, group = cluster.filled(10), cluster.new_name("g")
    with reader(
        cluster, topic, group_id=group, enable_auto_commit=False, max_poll_records=5
    ) as first:
        assert values(read(first, 5)) == [b"v%d" % number for number in range(5)]
        first.commit()

    with reader(cluster, topic, group_id=group, enable_auto_commit=False) as second:
        assert values(read(second, 5)) == [b"v%d" % number for number in range(5, 10)]
    assert members_of(cluster, group) == 0


@pytest.mark.parametrize("subscribes", [False, True], ids=["never", "for a moment"])
def test_who_gives_up_before_joining_leaves_no_member(cluster: Cluster, subscribes: bool) -> None:
    topic, group = cluster.filled(1), cluster.new_name("g")

    with Consumer(cluster.address, group_id=group) as consumer:
        if subscribes:
            consumer.subscribe([topic])
            consumer.unsubscribe()
        assert not consumer.subscription()

    assert members_of(cluster, group) == 0


def test_a_position_at_the_end_is_where_the_next_record_will_be(cluster: Cluster) -> None:
    topic = cluster.filled(10)
    (partition,) = at(topic)
    with reader(cluster, topic) as consumer:
        consumer.seek_to_end([partition])
        assert consumer.position(partition) == 10

        cluster.write(topic, [b"next"])

        assert [(each.offset, each.value) for each in read(consumer, 1)] == [(10, b"next")]


def test_times_cannot_be_looked_up_before_1970_or_where_nothing_is(cluster: Cluster) -> None:
    topic = cluster.filled(1)
    with Consumer(cluster.address) as consumer:
        with pytest.raises(InvalidArgument):
            consumer.offsets_for_times({TopicPartition(topic, 0): -1})
        with pytest.raises((UnknownTopicOrPartition, OperationTimeout)):
            consumer.offsets_for_times({TopicPartition(topic, 100): 0}, timeout=2.0)


def test_a_record_that_cannot_be_sent_leaves_nothing_behind(cluster: Cluster) -> None:
    topic = cluster.topic()
    with Producer(cluster.address) as producer:
        with pytest.raises(InvalidArgument):
            producer.send(topic, object())  # type: ignore[arg-type]  # on purpose
        producer.flush()
        assert producer.send(topic, b"v").result(30.0).offset == 0


def test_interceptors_hear_of_commits_that_nobody_asked_for(cluster: Cluster) -> None:
    topic, group = cluster.filled(4), cluster.new_name("g")
    committed: list[int] = []

    class Witness:
        def on_commit(self, offsets: Any) -> None:
            committed.extend(each.offset for each in offsets.values())

    with reader(
        cluster, topic, interceptors=[Witness()], group_id=group, auto_commit_interval=0.01
    ) as consumer:
        read(consumer, 4)
        poll_until(lambda: bool(committed), consumer)

    assert committed[0] == 4


def test_asyncio_clients_can_be_made_before_a_loop_runs(cluster: Cluster) -> None:
    topic = cluster.topic()
    producer = AsyncProducer(cluster.address)
    consumer = AsyncConsumer(cluster.address, auto_offset_reset="earliest")
    consumer.assign(at(topic))

    async def main() -> list[bytes | None]:
        async with producer, consumer:
            await (await producer.send(topic, b"v"))
            return [each.value for each in await consumer.poll(30.0)]

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [b"v"]


def test_topics_are_described_however_many_there_are(cluster: Cluster) -> None:
    topics = [cluster.topic(3) for _ in range(5)]
    with Admin(cluster.address) as admin:
        described = admin.describe_topics(topics)
        assert {name: len(described[name].partitions) for name in topics} == dict.fromkeys(
            topics, 3
        )
        missing = admin.describe_topics(["no-such-topic", topics[0]])
    assert isinstance(missing.errors["no-such-topic"], MillstreamError)
    assert missing[topics[0]].name == topics[0]
