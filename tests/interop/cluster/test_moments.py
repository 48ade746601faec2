"""Single moments in a cluster of Apache Kafka: racks, lost leaders, cut logs, new addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.errors import LogTruncation
from tests.interop.cluster.sockets import received_bytes
from tests.interop.kafka_broker import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.interop.cluster.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PATIENCE = 60.0
SIZE = 2_000
COUNT = 500


def reader(cluster: KafkaCluster, topic: str, **settings: Any) -> Consumer:
    """A consumer of partition 0, from its beginning; a broker that hangs is soon given up."""
    given = {"auto_offset_reset": "earliest", "request_timeout": 5.0, **settings}
    consumer = Consumer(cluster.bootstrap, **given)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    return consumer


def write(cluster: KafkaCluster, topic: str, values: Iterable[bytes], **settings: Any) -> None:
    """All acknowledged at the end."""
    with Producer(cluster.bootstrap, **settings) as producer:
        for each in values:
            producer.send(topic, each, partition=0)
        producer.flush(PATIENCE)


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of so many records, and not more."""
    found: list[bytes | None] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE)
        assert records, f"{len(found)} of {count} records came"
        found += [each.value for each in records]
    assert len(found) == count
    return found


def numbered(first: int, end: int, size: int = 0) -> Iterator[bytes]:
    """Values that tell their place."""
    return (b"%d" % each + b"." * size for each in range(first, end))


# ---- racks ----


def test_a_consumer_reads_from_the_replica_in_its_rack_and_goes_on_when_that_dies(
    cluster: KafkaCluster,
) -> None:
    topic = cluster.topic("racks")
    leader, follower = cluster.nodes[1], cluster.nodes[3]
    write(cluster, topic, numbered(0, COUNT, SIZE))
    before = received_bytes()

    with reader(cluster, topic, client_rack=follower.rack) as consumer:
        assert read(consumer, COUNT) == list(numbered(0, COUNT, SIZE))
        received = received_bytes() - before
        assert received[follower.port] > COUNT * SIZE
        assert received[leader.port] < COUNT * SIZE / 10

        follower.kill()
        write(cluster, topic, numbered(COUNT, COUNT + 10))
        assert read(consumer, 10) == list(numbered(COUNT, COUNT + 10))


def test_a_consumer_in_no_rack_reads_from_the_leader(cluster: KafkaCluster) -> None:
    topic = cluster.topic("racks")
    write(cluster, topic, numbered(0, COUNT, SIZE))
    before = received_bytes()

    with reader(cluster, topic) as consumer:
        assert read(consumer, COUNT) == list(numbered(0, COUNT, SIZE))
        received = received_bytes() - before

    assert received[cluster.nodes[1].port] > COUNT * SIZE


# ---- lost leaders ----


def test_a_leader_that_dies_while_clients_are_idle_is_replaced(cluster: KafkaCluster) -> None:
    topic = cluster.topic("idle")
    partition = TopicPartition(topic, 0)
    with (
        Producer(cluster.bootstrap, delivery_timeout=PATIENCE) as producer,
        reader(cluster, topic) as consumer,
    ):
        producer.send(topic, b"0", partition=0).result(PATIENCE)
        assert read(consumer, 1) == [b"0"]
        consumer.pause([partition])
        assert consumer.poll(1.0) == []

        cluster.nodes[1].kill()
        cluster.until(lambda: cluster.leader(topic).node_id != 1, lambda: "another leads")

        assert producer.send(topic, b"1", partition=0).result(PATIENCE).offset == 1
        consumer.resume([partition])
        assert read(consumer, 1) == [b"1"]


# ---- truncated logs ----


def truncate(cluster: KafkaCluster, topic: str, readers: list[Consumer]) -> None:
    """Ten records stay, ten that were read are gone, and fifteen others come in their place.

    The follower hangs while the leader writes alone, and becomes leader when that is dead.
    """
    leader, follower = cluster.nodes[1], cluster.nodes[2]
    write(cluster, topic, numbered(0, 10))
    cluster.until(lambda: cluster.in_sync(topic) == {1, 2}, lambda: "both have the records")
    follower.pause()
    cluster.until(lambda: cluster.in_sync(topic) == {1}, lambda: "the leader is alone")
    write(cluster, topic, numbered(10, 20))
    for each in readers:
        assert read(each, 20) == list(numbered(0, 20))
    leader.kill()
    follower.resume()
    cluster.until(lambda: cluster.leader(topic) is follower, lambda: "the follower leads")
    write(cluster, topic, numbered(110, 125))


def test_a_truncated_log_is_told_or_read_again_and_never_passed_over(
    cluster: KafkaCluster,
) -> None:
    topic = cluster.topic_at(
        "cut", {0: [1, 2]}, min_insync_replicas="1", unclean_leader_election_enable="true"
    )
    partition = TopicPartition(topic, 0)
    with (
        reader(cluster, topic) as patient,
        reader(cluster, topic, auto_offset_reset="none") as strict,
    ):
        truncate(cluster, topic, [patient, strict])

        assert read(patient, 15) == list(numbered(110, 125))
        with pytest.raises(LogTruncation, match="truncated to offset 10") as raised:
            strict.poll(PATIENCE)
        assert raised.value.divergent_offsets == {partition: 10}
        strict.seek(partition, 10)
        assert read(strict, 15) == list(numbered(110, 125))


# ---- other addresses ----


def test_clients_find_a_cluster_that_has_moved_by_their_bootstrap_addresses(
    cluster: KafkaCluster,
) -> None:
    topic = cluster.topic("moved")
    ports = free_ports(3)
    # The second address answers only when everybody who was known is gone.
    bootstrap = f"{cluster.nodes[1].address},localhost:{ports[0]}"
    with (
        Admin(bootstrap) as admin,
        Producer(bootstrap) as producer,
        Consumer(bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        producer.send(topic, b"0", partition=0).result(PATIENCE)
        assert read(consumer, 1) == [b"0"]
        before = {each.port for each in admin.describe_cluster().brokers}

        cluster.move(ports)

        assert producer.send(topic, b"1", partition=0).result(PATIENCE).offset == 1
        assert read(consumer, 1) == [b"1"]
        assert {each.port for each in admin.describe_cluster().brokers} == set(ports)
        assert before.isdisjoint(ports)
