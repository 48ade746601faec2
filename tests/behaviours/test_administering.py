"""Administration: topics, settings, groups, transactions; what fails is told item by item."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, AsyncAdmin, Consumer, OffsetAndMetadata, Producer
from millstream.client.admin import END, Append, ConfigResource, NewTopic
from millstream.errors import (
    GroupIdNotFound,
    InvalidPartitions,
    MillstreamError,
    NonEmptyGroup,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tests.behaviours.clusters import at
from tests.behaviours.polling import read
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.behaviours.clusters import Cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.address) as admin:
        yield admin


def test_topics_are_created_described_grown_and_deleted(cluster: Cluster, admin: Admin) -> None:
    a, b, none = (cluster.new_name(each) for each in ("a", "b", "none"))

    admin.create_topics(
        [NewTopic(a, 2, 1, {"retention.ms": 60_000}), NewTopic(b, 1, 1)]
    ).raise_first()
    until(lambda: {a, b} <= {each.name for each in admin.list_topics()})
    again = admin.create_topics([NewTopic(a, 1, 1), NewTopic(f"{a}-new", 1, 1)])
    assert isinstance(again.errors[a], TopicAlreadyExists)
    assert set(again.results) == {f"{a}-new"}
    described = admin.describe_topics([a, none])
    assert [each.index for each in described[a].partitions] == [0, 1]
    assert isinstance(described.errors[none], UnknownTopicOrPartition)
    grown = admin.create_partitions({a: 4, b: 1})
    assert set(grown.results) == {a}
    assert isinstance(grown.errors[b], InvalidPartitions)
    until(lambda: len(admin.describe_topics([a])[a].partitions) == 4)
    gone = admin.delete_topics([a, b, none])
    assert set(gone.results) == {a, b}
    assert isinstance(gone.errors[none], UnknownTopicOrPartition)
    until(lambda: {a, b}.isdisjoint(each.name for each in admin.list_topics()))


def test_a_topic_can_be_checked_without_being_made(cluster: Cluster, admin: Admin) -> None:
    name = cluster.new_name("checked")

    assert set(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True).results) == {name}
    assert name not in {each.name for each in admin.list_topics()}


def test_settings_are_read_changed_and_refused(cluster: Cluster, admin: Admin) -> None:
    cluster.require("incremental configs")
    topic = ConfigResource("topic", cluster.topic())

    def value(name: str) -> str:
        return admin.describe_configs([topic], names=[name])[topic][name].value or ""

    admin.incremental_alter_configs(
        {topic: {"retention.ms": 5_000, "cleanup.policy": Append(("compact",))}}
    ).raise_first()
    until(lambda: value("retention.ms") == "5000" and "compact" in value("cleanup.policy"))
    admin.incremental_alter_configs({topic: {"retention.ms": None}}).raise_first()
    until(lambda: value("retention.ms") == "604800000")
    wrong = admin.incremental_alter_configs({topic: {"retention.ms": "soon"}})
    assert isinstance(wrong.errors[topic], MillstreamError)


def test_settings_of_topics_and_brokers_are_described(cluster: Cluster, admin: Admin) -> None:
    topic = ConfigResource("topic", cluster.topic(retention_ms="1234"))
    node = str(admin.describe_cluster().brokers[0].node_id)
    broker = ConfigResource("broker", node)

    found = admin.describe_configs([topic, broker]).raise_first()

    assert found[topic]["retention.ms"].value == "1234"
    assert not found[topic]["retention.ms"].is_default
    assert found[topic]["cleanup.policy"].is_default
    assert "log.retention.hours" in found[broker]
    missing = ConfigResource("topic", cluster.new_name("none"))
    outcomes = admin.describe_configs([topic, missing])
    assert set(outcomes.results) == {topic}
    assert set(outcomes.errors) == {missing}


def test_offsets_are_listed_and_records_deleted(cluster: Cluster, admin: Admin) -> None:
    topic = cluster.filled(10, partitions=2)
    first, second = at(topic, 0, 1)

    listed = admin.list_offsets({first: "earliest", second: "latest"}).raise_first()
    assert (listed[first].offset, listed[second].offset) == (0, 5)
    assert admin.delete_records({first: 2, second: END}).raise_first().results == {
        first: 2,
        second: 5,
    }
    assert admin.list_offsets({first: "earliest"})[first].offset == 2
    partly = admin.delete_records({first: 99, second: 5})
    assert set(partly.errors) == {first}
    assert partly[second] == 5


def test_groups_and_their_offsets(cluster: Cluster, admin: Admin) -> None:
    topic, group, none = cluster.filled(4), cluster.new_name("g"), cluster.new_name("none")
    (partition,) = at(topic)

    with Consumer(
        cluster.address, topic, group_id=group, client_id="me", auto_offset_reset="earliest"
    ) as consumer:
        read(consumer, 4)
        described = admin.describe_group(group)
        assert described.state == "Stable"
        (member,) = described.members
        assert member.client_id == "me"
        assert partition in member.assignment
        assert isinstance(admin.delete_groups([group]).errors[group], NonEmptyGroup)
    assert group in {each.group_id for each in admin.list_groups()}
    assert admin.describe_groups([group])[group].state == "Empty"
    assert admin.list_group_offsets([group])[group][partition].offset == 4
    changed = {partition: OffsetAndMetadata(1, "back")}
    admin.alter_group_offsets(group, changed).raise_first()
    found = admin.list_group_offsets([group])[group][partition]
    assert (found.offset, found.metadata) == (1, "back")
    gone = admin.delete_groups([group, none])
    assert set(gone.results) == {group}
    assert isinstance(gone.errors[none], GroupIdNotFound)


def test_the_cluster_is_described(cluster: Cluster, admin: Admin) -> None:
    described = admin.describe_cluster()

    (broker,) = described.brokers
    assert str(broker.port) == cluster.address.rpartition(":")[2]
    assert described.controller_id == broker.node_id
    assert described.cluster_id


def test_open_transactions_are_found_and_their_producers_fenced(
    cluster: Cluster, admin: Admin
) -> None:
    topic, name = cluster.topic(), cluster.new_name("tx")
    with Producer(cluster.address, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v").result(30)
        if cluster.name == "kafka-2.1":
            with pytest.raises(UnsupportedVersion):
                admin.list_transactions()
        else:
            cluster.require("transaction lists")
            assert name in {each.transactional_id for each in admin.list_transactions()}
            assert admin.describe_transactions([name])[name].state == "Ongoing"
            (partition,) = at(topic)
            assert len(admin.describe_producers([partition])[partition]) == 1
        admin.fence_producers([name]).raise_first()
        with pytest.raises(MillstreamError):
            producer.commit_transaction()


def test_the_asyncio_client_does_the_same(cluster: Cluster) -> None:
    name = cluster.new_name("async")

    async def main() -> None:
        async with AsyncAdmin(cluster.address) as admin:
            await admin.create_topic(name, partitions=3, replication_factor=1)
            described = await admin.describe_topics([name, f"{name}-none"])
            assert f"{name}-none" in described.errors
            offsets, groups = await asyncio.gather(
                admin.list_offsets({at(name)[0]: "latest"}), admin.list_groups()
            )
            assert offsets[at(name)[0]].offset == 0
            assert isinstance(groups, list)
            await admin.delete_topic(name)

    asyncio.run(asyncio.wait_for(main(), 60))
