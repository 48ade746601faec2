"""Several nodes as one cluster of metadata: elections, failures, nodes that come late."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream import Admin
from millstream.client.admin.topics import NewTopic
from millstream.errors import MillstreamError
from millstream.node.formatting import storage_info
from millstream.protocol.notation import VersionRange
from millstream.storage.disk import DiskFileSystem
from millstream.storage.manager.meta_properties import MetaProperties, write_meta_properties
from millstream.testing import EmbeddedCluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.metadata.image import MetadataImage


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


def create(admin: Admin, *names: str) -> None:
    admin.create_topics([NewTopic(name, 1, replication_factor=1) for name in names])


def image(cluster: EmbeddedCluster, node_id: int) -> MetadataImage:
    def look(node: object) -> MetadataImage:
        shared = cluster.node(node_id).shared
        assert shared is not None
        return shared.metadata.image

    return cluster.call(node_id, look)


def until_equal(cluster: EmbeddedCluster, *topics: str) -> None:
    """Wait until every node has the same metadata, with these topics in it."""

    def is_equal() -> bool:
        images = [image(cluster, each) for each in cluster.running]
        has_all = all(each in images[0].topics.by_name for each in topics)
        return has_all and all(each == images[0] for each in images)

    until(is_equal)


def other_active(cluster: EmbeddedCluster, than: int) -> int | None:
    """A node that is the active controller, besides one that may believe that it is."""
    for each in cluster.running:
        controller = cluster.node(each).controller
        if each != than and controller is not None and controller.is_active:
            return each
    return None


def test_three_nodes_are_one_cluster(cluster: EmbeddedCluster, admin: Admin) -> None:
    described = admin.describe_cluster()
    quorum = admin.describe_quorum()

    assert [each.node_id for each in described.brokers] == [1, 2, 3]
    assert not any(each.is_fenced for each in described.brokers)
    assert quorum.leader_id == cluster.controller_id()
    assert sorted(each.node_id for each in quorum.voters) == [1, 2, 3]
    # A controller of Apache Kafka lets nobody in who does not name every feature.
    registered = image(cluster, 1).cluster
    assert registered.brokers[1].features["streams.version"] == VersionRange(0, 1)
    assert registered.controllers[1].features["streams.version"] == VersionRange(0, 1)


def test_every_broker_takes_requests_for_the_controller(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers.split(",")
    for number, server in enumerate(servers):
        with Admin(server) as admin:
            create(admin, f"topic-{number}")

    until_equal(cluster, *[f"topic-{number}" for number in range(len(servers))])


def test_the_cluster_decides_on_when_its_controller_dies(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, "before")
    dead = cluster.controller_id()
    assert dead is not None

    cluster.kill(dead)
    create(admin, "after")
    cluster.start(dead)

    until_equal(cluster, "before", "after")


def test_a_controller_that_stops_hands_over(cluster: EmbeddedCluster, admin: Admin) -> None:
    former = cluster.controller_id()
    assert former is not None

    cluster.stop(former)

    until(lambda: other_active(cluster, former) is not None)
    create(admin, "after")
    cluster.start(former)
    until_equal(cluster, "after")


def test_a_controller_that_stood_still_finds_another_in_its_place(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    paused = cluster.controller_id()
    assert paused is not None

    cluster.pause(paused)
    until(lambda: other_active(cluster, paused) is not None)
    with Admin(cluster.bootstrap_servers) as other:
        create(other, "meanwhile")
    cluster.resume(paused)

    until_equal(cluster, "meanwhile")
    controller = cluster.node(paused).controller
    assert controller is not None
    assert not controller.is_active


def test_a_controller_that_nobody_reaches_decides_nothing(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    alone = cluster.controller_id()
    assert alone is not None

    cluster.isolate(alone)
    until(lambda: other_active(cluster, alone) is not None)
    controller = cluster.node(alone).controller
    assert controller is not None
    until(lambda: not controller.is_active)
    create(admin, "without-it")
    assert "without-it" not in image(cluster, alone).topics.by_name
    cluster.heal()

    until_equal(cluster, "without-it")


def test_everything_is_there_after_all_nodes_were_killed(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    create(admin, "a", "b")

    cluster.kill()
    cluster.start()

    until_equal(cluster, "a", "b")
    create(admin, "c")
    until_equal(cluster, "c")


def test_brokers_and_controllers_apart() -> None:
    with (
        EmbeddedCluster(nodes=2, controllers=3) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        create(admin, "first")
        quorum = admin.describe_quorum()
        leader = cluster.controller_id()
        assert leader in (3, 4, 5)
        assert sorted(each.node_id for each in quorum.voters) == [3, 4, 5]
        assert {each.node_id for each in quorum.observers} == {1, 2}

        cluster.kill(leader)
        create(admin, "second")
        until_equal(cluster, "first", "second")


def test_a_node_that_comes_late_begins_with_a_snapshot() -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    cluster = EmbeddedCluster(nodes=2, controllers=1, settings=settings)
    try:
        cluster.start(1, 3)
        with Admin(cluster.bootstrap_servers) as admin:
            for number in range(30):
                create(admin, f"topic-{number}")
        cluster.start(2)

        until_equal(cluster, *[f"topic-{number}" for number in range(30)])
        shared = cluster.node(2).shared
        assert shared is not None
        assert cluster.call(2, lambda node: shared.log.start_offset) > 0
    finally:
        cluster.close()


def test_a_node_of_another_cluster_is_not_let_in(
    cluster: EmbeddedCluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = next(each for each in cluster.running if each != cluster.controller_id())
    config = cluster.node(stranger).config
    cluster.stop(stranger)
    (path, meta), *_ = storage_info(config, DiskFileSystem()).metas.items()
    other = MetaProperties("AAAAAAAAAAAAAAAAAAAAEQ", meta.node_id, meta.directory_id)
    write_meta_properties(DiskFileSystem(), path, other)

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(cluster.start, stranger)
        until(lambda: "belongs to another cluster" in caplog.text)
        create(admin, "without-it")
        cluster.kill()
        with pytest.raises(MillstreamError):
            started.result()
