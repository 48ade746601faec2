"""Records on several brokers: acks=all, failover, returns, truncation, ISR; logs equal at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import Admin, Producer
from millstream.errors import MillstreamError
from millstream.testing import EmbeddedCluster
from tests.integration.cluster.replicas import (
    SETTINGS,
    consume,
    create,
    isr,
    produce,
    until_equal,
    until_led,
)
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


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
