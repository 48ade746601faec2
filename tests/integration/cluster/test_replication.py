"""Records on several brokers: acks=all, failover, returns, truncation, ISR; logs equal at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Consumer, Producer
from millstream.client.admin.topics import NewTopic
from millstream.errors import MillstreamError
from millstream.testing import EmbeddedCluster
from millstream.types import TopicPartition
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.node.node import Node
    from millstream.replica.partition import Partition

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SETTINGS = {
    "replica.lag.time.max.ms": 1500,
    "replica.fetch.backoff.ms": 50,
    "replica.fetch.wait.max.ms": 200,
}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


def create(admin: Admin, name: str = "t", partitions: int = 1, **config: object) -> None:
    topic = NewTopic(
        name,
        partitions,
        replication_factor=3,
        config={key.replace("_", "."): str(value) for key, value in config.items()},
    )
    admin.create_topics([topic])


def produce(cluster: EmbeddedCluster, values: range, topic: str = "t", partition: int = 0) -> None:
    """Write and wait for every acknowledgement of all in-sync replicas."""
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        sent = [producer.send(topic, str(each).encode(), partition=partition) for each in values]
        for each in sent:
            each.result(60)


def consume(cluster: EmbeddedCluster, count: int, topic: str = "t") -> list[int]:
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[int] = []
        while len(found) < count:
            found += [int(each.value) for each in consumer.poll(30) if each.value is not None]
        return found


def partition_on(node: Node, topic: str = "t", index: int = 0) -> Partition | None:
    broker = node.broker
    if broker is None:
        return None
    return next(
        (each for each in broker.replicas.partitions if each.name == TopicPartition(topic, index)),
        None,
    )


def leader_of(cluster: EmbeddedCluster, topic: str = "t", index: int = 0) -> int | None:
    """Who leads in the eyes of a node that runs and leads itself."""
    for each in cluster.running:
        found = partition_on(cluster.node(each), topic, index)
        if found is not None and found.is_leader:
            return each
    return None


def until_led(cluster: EmbeddedCluster, *, than: int | None = None) -> int:
    until(lambda: leader_of(cluster) not in (None, than))
    leader = leader_of(cluster)
    assert leader is not None
    return leader


def isr(cluster: EmbeddedCluster) -> set[int]:
    leader = leader_of(cluster)
    found = None if leader is None else partition_on(cluster.node(leader))
    return set() if found is None else set(found.isr)


def log_bytes(cluster: EmbeddedCluster, node_id: int, topic: str = "t", index: int = 0) -> bytes:
    """All records of a replica, as they are in its files."""

    def read(node: Node) -> bytes:
        found = partition_on(node, topic, index)
        if found is None:
            return b""
        log, data = found.log, b""
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, 1 << 24).records
            assert records is not None
            data += records.read()
            offset = log.log_end_offset
        return data

    return cluster.call(node_id, read)


def until_equal(cluster: EmbeddedCluster, topic: str = "t", index: int = 0) -> None:
    """Every replica has the same bytes, and knows that all of them are committed."""

    def watermarks(node: Node) -> tuple[int, int]:
        found = partition_on(node, topic, index)
        return (-1, -2) if found is None else (found.log.high_watermark, found.log.log_end_offset)

    def is_equal() -> bool:
        seen = {cluster.call(each, watermarks) for each in cluster.running}
        return len(seen) == 1 and all(high == end for high, end in seen)

    until(is_equal)
    logs = {log_bytes(cluster, each, topic, index) for each in cluster.running}
    assert len(logs) == 1


def test_every_replica_has_what_was_acknowledged(cluster: EmbeddedCluster, admin: Admin) -> None:
    create(admin, min_insync_replicas=2)

    produce(cluster, range(100))

    assert consume(cluster, 100) == list(range(100))
    until_equal(cluster)


def test_nothing_acknowledged_is_lost_when_the_leader_dies(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=2)
    produce(cluster, range(50))
    dead = until_led(cluster)

    cluster.kill(dead)
    until_led(cluster, than=dead)
    produce(cluster, range(50, 100))

    assert consume(cluster, 100) == list(range(100))
    cluster.start(dead)
    until(lambda: isr(cluster) == {1, 2, 3})
    until_equal(cluster)


def test_a_former_leader_cuts_what_the_others_never_had(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=1)
    produce(cluster, range(10))
    former = until_led(cluster)
    for other in {1, 2, 3} - {former}:
        cluster.cut(other, former, both_ways=False)
    with Producer(cluster.bootstrap_servers, acks=1) as producer:
        producer.send("t", b"lost", partition=0).result(30)

    cluster.kill(former)
    cluster.heal()
    until_led(cluster, than=former)
    produce(cluster, range(10, 20))
    cluster.start(former)

    until(lambda: isr(cluster) == {1, 2, 3})
    until_equal(cluster)
    assert consume(cluster, 20) == list(range(20))


def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=2)
    produce(cluster, range(10))
    leader = until_led(cluster)
    paused = next(each for each in (1, 2, 3) if each not in (leader, cluster.controller_id()))

    cluster.pause(paused)
    until(lambda: paused not in isr(cluster))
    produce(cluster, range(10, 20))
    cluster.resume(paused)

    until(lambda: isr(cluster) == {1, 2, 3})
    until_equal(cluster)


def test_too_few_replicas_take_nothing_with_acks_all(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=3)
    produce(cluster, range(10))
    leader = until_led(cluster)
    gone = next(each for each in (1, 2, 3) if each not in (leader, cluster.controller_id()))

    cluster.kill(gone)
    until(lambda: gone not in isr(cluster))
    with (
        Producer(
            cluster.bootstrap_servers, acks="all", delivery_timeout=2, request_timeout=1
        ) as producer,
        pytest.raises(MillstreamError),
    ):
        producer.send("t", b"refused", partition=0).result(30)
    cluster.start(gone)
    until(lambda: isr(cluster) == {1, 2, 3})

    produce(cluster, range(10, 20))
    until_equal(cluster)


def test_a_topic_that_waits_for_the_disk_is_replicated_too(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=3, millstream_durability="disk")

    produce(cluster, range(100))

    until_equal(cluster)


def test_a_broker_that_stops_hands_its_partitions_over(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, min_insync_replicas=2)
    produce(cluster, range(10))
    former = until_led(cluster)

    cluster.stop(former)
    until_led(cluster, than=former)
    produce(cluster, range(10, 20))
    cluster.start(former)

    until(lambda: isr(cluster) == {1, 2, 3})
    until_equal(cluster)
    assert consume(cluster, 20) == list(range(20))
