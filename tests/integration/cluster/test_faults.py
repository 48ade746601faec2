"""What reaches a quorum by accident or ill will: the leader stays, and the cluster goes on."""

from __future__ import annotations

import socket
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream import Admin
from millstream.raft.states import Role
from millstream.testing import EmbeddedCluster
from tests.integration.cluster.test_quorum import create, until_equal
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

GARBAGE = {
    "noise": Random(1).randbytes(400),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "huge frame": b"\x7f\xff\xff\xff" + bytes(50),
    "unknown API": b"\x00\x00\x00\x0c\x7f\xff\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


def test_garbage_on_the_controllers_ports_disturbs_nobody(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    before = admin.describe_quorum()

    for node_id in cluster.running:
        (endpoint,) = cluster.node(node_id).controller_endpoints
        for data in GARBAGE.values():
            with socket.create_connection((endpoint.host, endpoint.port), timeout=30) as stranger:
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass

    create(admin, "after-garbage")
    until_equal(cluster, "after-garbage")
    after = admin.describe_quorum()
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)


def test_a_voter_that_does_not_reach_the_leader_deposes_nobody(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    before = admin.describe_quorum()
    lonely = next(each for each in cluster.running if each != before.leader_id)
    shared = cluster.node(lonely).shared
    assert shared is not None

    cluster.cut(lonely, before.leader_id, both_ways=False)
    until(lambda: shared.driver.core.role is Role.PROSPECTIVE)
    create(admin, "one-way")
    cluster.heal()

    until_equal(cluster, "one-way")
    after = admin.describe_quorum()
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
