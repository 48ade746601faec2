"""Which broker leads and which have replicas: elections, reassignments, reading near, deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Consumer
from millstream.client.admin.topics import NewTopic
from millstream.errors import ElectionNotNeeded
from millstream.testing import EmbeddedCluster
from millstream.types import TopicPartition
from tests.integration.cluster.replicas import (
    SETTINGS,
    create,
    isr,
    leader_of,
    partition_on,
    produce,
    until_equal,
    until_led,
)
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.node.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def make(**settings: object) -> EmbeddedCluster:
    """Three nodes in three racks, not started."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    cluster = EmbeddedCluster(nodes=3, settings={**SETTINGS, **given})
    for node_id, member in cluster._members.items():
        process = replace(member.config.process, broker_rack=f"rack-{node_id}")
        member.config = replace(member.config, process=process)
    return cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with make(replica_selector_class=selector, auto_leader_rebalance_enable=False) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


def preferred(admin: Admin, topic: str) -> int:
    return admin.describe_topics([topic])[topic].partitions[0].replicas[0]


def test_the_preferred_replica_leads_again_when_it_is_asked_for(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, "elected")
    first, partition = preferred(admin, "elected"), TopicPartition("elected", 0)
    cluster.restart(first)
    until_led(cluster, "elected", than=first)
    until(lambda: isr(cluster, "elected") == {1, 2, 3})

    admin.elect_leaders([partition]).raise_first()

    until(lambda: leader_of(cluster, "elected") == first)
    again = admin.elect_leaders([partition])
    assert isinstance(again.errors[partition], ElectionNotNeeded)


def test_replicas_are_added_and_removed_by_reassignment(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    admin.create_topics([NewTopic("moved", assignment={0: [1]})])
    produce(cluster, range(50), "moved")
    partition = TopicPartition("moved", 0)

    admin.alter_partition_reassignments({partition: [3, 1, 2]}).raise_first()
    until(lambda: isr(cluster, "moved") == {1, 2, 3})
    until(lambda: not admin.list_partition_reassignments())
    produce(cluster, range(50, 60), "moved")
    until_equal(cluster, "moved")
    admin.alter_partition_reassignments({partition: [2]}).raise_first()

    until(lambda: leader_of(cluster, "moved") == 2)
    until(lambda: partition_on(cluster.node(1), "moved") is None)
    until(lambda: partition_on(cluster.node(3), "moved") is None)
    produce(cluster, range(60, 70), "moved")


def test_a_consumer_reads_from_the_replica_in_its_rack(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, "near")
    produce(cluster, range(100), "near")
    until_equal(cluster, "near")
    leader = until_led(cluster, "near")
    follower = next(each for each in (1, 2, 3) if each != leader)

    def serves_consumers(node: Node) -> bool:
        assert node.broker is not None
        sessions = node.broker.replicas.fetch_sessions.by_id.values()
        return any(not each.is_follower for each in sessions)

    with Consumer(
        cluster.bootstrap_servers, auto_offset_reset="earliest", client_rack=f"rack-{follower}"
    ) as consumer:
        consumer.assign([TopicPartition("near", 0)])
        count = 0
        while count < 100:
            count += len(consumer.poll(30))
        produce(cluster, range(100, 110), "near")
        while count < 110:
            count += len(consumer.poll(30))

        assert cluster.call(follower, serves_consumers)


def test_deleted_records_go_on_every_replica(cluster: EmbeddedCluster, admin: Admin) -> None:
    create(admin, "deleted")
    produce(cluster, range(20), "deleted")

    admin.delete_records({TopicPartition("deleted", 0): 15}).raise_first()

    def start(node: Node) -> int:
        found = partition_on(node, "deleted")
        return -1 if found is None else found.log.log_start_offset

    assert [cluster.call(each, start) for each in (1, 2, 3)] == [15, 15, 15]


def test_leaders_go_back_to_the_preferred_replicas_by_themselves() -> None:
    with (
        make(leader_imbalance_check_interval_seconds=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        create(admin, "back")
        first = preferred(admin, "back")
        cluster.restart(first)

        until(lambda: leader_of(cluster, "back") == first)


def test_an_unclean_leader_is_elected_only_when_it_is_asked_for(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    first, second = (each for each in (1, 2, 3) if each != controller)
    admin.create_topics([NewTopic("unclean", assignment={0: [first, second]})])
    produce(cluster, range(10), "unclean")
    until_equal(cluster, "unclean", nodes=(first, second))
    partition = TopicPartition("unclean", 0)

    cluster.kill(second)
    until(lambda: isr(cluster, "unclean") == {first})
    produce(cluster, range(10, 20), "unclean")
    cluster.kill(first)
    cluster.start(second)
    until(lambda: admin.describe_topics(["unclean"])["unclean"].partitions[0].leader is None)
    admin.elect_leaders([partition], election="unclean").raise_first()

    until(lambda: leader_of(cluster, "unclean") == second)
    cluster.start(first)
    until(lambda: isr(cluster, "unclean") == {first, second})
    until_equal(cluster, "unclean", nodes=(first, second))
    found = partition_on(cluster.node(first), "unclean")
    assert found is not None
    assert found.log.log_end_offset == 10
