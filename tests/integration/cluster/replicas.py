"""What tests of replicated topics do with an `EmbeddedCluster`, and see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import Consumer, Producer
from millstream.client.admin.topics import NewTopic
from millstream.types import TopicPartition
from tests.waiting import until

if TYPE_CHECKING:
    from millstream import Admin
    from millstream.node.node import Node
    from millstream.replica.partition import Partition
    from millstream.testing import EmbeddedCluster

SETTINGS = {
    "replica.lag.time.max.ms": 1500,
    "replica.fetch.backoff.ms": 50,
    "replica.fetch.wait.max.ms": 200,
}


def create(admin: Admin, name: str = "t", partitions: int = 1, **config: object) -> None:
    """A topic with three replicas."""
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
    """The first records, as numbers."""
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[int] = []
        while len(found) < count:
            found += [int(each.value) for each in consumer.poll(30) if each.value is not None]
        return found


def partition_on(node: Node, topic: str = "t", index: int = 0) -> Partition | None:
    """A node's replica."""
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


def until_led(cluster: EmbeddedCluster, topic: str = "t", *, than: int | None = None) -> int:
    """Wait for a leader, or for another one; who it is."""
    until(lambda: leader_of(cluster, topic) not in (None, than))
    leader = leader_of(cluster, topic)
    assert leader is not None
    return leader


def isr(cluster: EmbeddedCluster, topic: str = "t") -> set[int]:
    """The in-sync replicas in the leader's eyes."""
    leader = leader_of(cluster, topic)
    found = None if leader is None else partition_on(cluster.node(leader), topic)
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


def until_equal(
    cluster: EmbeddedCluster, topic: str = "t", index: int = 0, nodes: tuple[int, ...] = ()
) -> None:
    """Every replica has the same bytes, and knows that all of them are committed."""

    def watermarks(node: Node) -> tuple[int, int]:
        found = partition_on(node, topic, index)
        return (-1, -2) if found is None else (found.log.high_watermark, found.log.log_end_offset)

    chosen = nodes or tuple(cluster.running)

    def is_equal() -> bool:
        seen = {cluster.call(each, watermarks) for each in chosen}
        return len(seen) == 1 and all(high == end for high, end in seen)

    until(is_equal, lambda: str({each: cluster.call(each, watermarks) for each in chosen}))
    logs = {log_bytes(cluster, each, topic, index) for each in chosen}
    assert len(logs) == 1
