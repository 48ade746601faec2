"""Transactions, groups and share groups whose partitions and coordinators are on three brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from millstream import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from millstream.client.admin import ConfigResource
from millstream.client.admin.topics import NewTopic
from millstream.coordinator.routing import partition_for
from millstream.metadata.topic_names import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from millstream.testing import EmbeddedCluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.session.timeout.ms": "1000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def coordinators(cluster: EmbeddedCluster) -> None:
    """The topics of groups and transactions are there, and every broker knows them."""
    with Producer(cluster.bootstrap_servers, transactional_id="first") as producer:
        producer.init_transactions()
    with Admin(cluster.bootstrap_servers) as admin:
        admin.describe_groups(["first"])
    topics = (TRANSACTION_STATE_TOPIC, GROUP_OFFSETS_TOPIC)
    until(lambda: all(leader(cluster, topic, 5, at=at) for topic in topics for at in (1, 2, 3)))


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic with a partition on each broker."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    create(cluster, name)
    return name


def create(cluster: EmbeddedCluster, name: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, assignment={0: [1], 1: [2], 2: [3]})])
    until(lambda: all(leader(cluster, name, each, at=each + 1) for each in range(3)))


def leader(cluster: EmbeddedCluster, topic: str, partition: int, *, at: int) -> int | None:
    """Who leads a partition, as one node sees it."""

    def look(node: Any) -> int | None:
        found: int | None = node.shared.metadata.leader_of(topic, partition)
        return found

    return cluster.call(at, look)


def key_at(cluster: EmbeddedCluster, topic: str, broker_id: int, prefix: str) -> str:
    """A transactional id or group whose coordinator is a certain broker."""
    names = (f"{prefix}-{number}" for number in range(200))
    return next(
        name
        for name in names
        if leader(cluster, topic, partition_for(name, 6), at=broker_id) == broker_id
    )


def committed(cluster: EmbeddedCluster, topic: str, count: int) -> list[Any]:
    """The values that readers of committed records see, when nothing is open any more."""
    partitions = [TopicPartition(topic, each) for each in range(3)]
    with Consumer(
        cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign(partitions)
        found: list[Any] = []
        while len(found) < count:
            found += [each.value for each in consumer.poll(30.0)]
        # The markers of all transactions are there: nothing is left to be read.
        until(lambda: consumer.poll(0.01) == [] and not any(map(consumer.lag, partitions)))
        return sorted(found)


@pytest.mark.parametrize("coordinator", [1, 2, 3])
def test_a_transaction_over_three_brokers_commits_and_aborts(
    cluster: EmbeddedCluster, topic: str, coordinator: int
) -> None:
    name = key_at(cluster, TRANSACTION_STATE_TOPIC, coordinator, "writer")
    with Producer(cluster.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(topic, f"{number}-{partition}", partition=partition)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    expected = [f"{number}-{partition}".encode() for number in (0, 2) for partition in range(3)]
    assert committed(cluster, topic, 6) == expected


def test_librdkafka_ends_transactions_over_three_brokers(
    cluster: EmbeddedCluster, topic: str
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"{end.__name__}-{partition}".encode(), partition=partition)
        end(30)

    expected = [f"commit_transaction-{partition}".encode() for partition in range(3)]
    assert committed(cluster, topic, 3) == expected


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_copy_commits_its_offsets_with_its_records(
    cluster: EmbeddedCluster, topic: str, place: int
) -> None:
    target = f"{topic}-copy"
    create(cluster, target)
    values = fill(cluster, topic)
    group = key_at(cluster, GROUP_OFFSETS_TOPIC, place, "group")
    name = key_at(cluster, TRANSACTION_STATE_TOPIC, place % 3 + 1, "copier")
    with (
        Consumer(
            cluster.bootstrap_servers,
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=name) as producer,
    ):
        producer.init_transactions()
        ends: dict[TopicPartition, int] = {}
        count = 0
        while count < len(values):
            records = consumer.poll(30.0)
            producer.begin_transaction()
            for each in records:
                producer.send(target, each.value, partition=each.partition)
                ends[TopicPartition(topic, each.partition)] = each.offset + 1
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            producer.commit_transaction()
            count += len(records)
        stored = consumer.committed(list(ends))

    assert committed(cluster, target, len(values)) == values
    assert {each: found.offset for each, found in stored.items() if found is not None} == ends


def test_a_share_group_reads_partitions_of_all_brokers(
    cluster: EmbeddedCluster, topic: str
) -> None:
    values = fill(cluster, topic)
    with Admin(cluster.bootstrap_servers) as admin:
        group = ConfigResource("group", topic)
        admin.incremental_alter_configs(
            {group: {"share.auto.offset.reset": "earliest"}}
        ).raise_first()
        with ShareConsumer(cluster.bootstrap_servers, topic, group_id=topic) as consumer:
            seen: list[Any] = []
            while len(seen) < len(values):
                seen += [each.value for each in consumer.poll(30.0)]
            assert set(consumer.commit().values()) <= {None}
        offsets = admin.list_share_group_offsets([topic])[topic]

    assert sorted(seen) == values
    assert sum(each.lag or 0 for each in offsets.values()) == 0
    assert {each.partition for each in offsets} == {0, 1, 2}


def fill(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    """Write thirty records to all partitions; their values."""
    values = [f"{number:02}".encode() for number in range(30)]
    with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 3)
    return values


def test_a_transaction_goes_on_when_its_coordinator_is_killed() -> None:
    replicated = {
        **SETTINGS,
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    with EmbeddedCluster(nodes=3, settings=replicated) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("moved", 3, replication_factor=3)])
        with Producer(cluster.bootstrap_servers, transactional_id="mover") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for partition in range(3):
                producer.send("moved", f"before-{partition}", partition=partition)
            producer.flush()
            victim = leader(cluster, TRANSACTION_STATE_TOPIC, partition_for("mover", 6), at=1)
            assert victim is not None
            cluster.kill(victim)
            for partition in range(3):
                producer.send("moved", f"later-{partition}", partition=partition)
            producer.commit_transaction()

        names = [f"{when}-{partition}" for when in ("before", "later") for partition in range(3)]
        assert committed(cluster, "moved", 6) == [each.encode() for each in names]
