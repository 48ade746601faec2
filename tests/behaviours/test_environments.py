"""Environments on one cluster do not mix, and records that fail are tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Consumer, Producer, RetryingConsumer, read_topic
from millstream.errors import UnknownTopicOrPartition
from tests.behaviours.clusters import at
from tests.behaviours.polling import read, values

if TYPE_CHECKING:
    from millstream.client.retrying.attempt import Attempt
    from tests.behaviours.clusters import Cluster


def test_an_environment_sees_its_own_topics_groups_and_transactions(cluster: Cluster) -> None:
    environment, topic = cluster.new_name("env"), cluster.new_name("orders")
    group = cluster.new_name("billing")
    own: Any = {"environment": environment}
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
        assert f"{environment}.{group}" in {each.group_id for each in everything.list_groups()}
        assert {topic, f"{environment}.{topic}"} <= {each.name for each in everything.list_topics()}
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
