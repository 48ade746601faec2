"""A node of a cluster that is ended before it has come up."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.errors import MillstreamError
from millstream.testing.cluster import EmbeddedCluster
from tests.waiting import until

pytestmark = pytest.mark.integration


def test_a_node_that_is_ended_while_it_starts_closes_its_connections() -> None:
    cluster = EmbeddedCluster(nodes=3)
    member = cluster._members[1]
    with ThreadPoolExecutor(1) as pool:
        # Alone it has no quorum and goes on trying.
        starting = pool.submit(cluster.start, 1)
        until(lambda: member.environment is not None and member.environment.selectors)
        endpoints = [each for each in member.config.network.endpoints if each.port]
        peers = [socket.create_connection((each.host, each.port)) for each in endpoints]

        cluster.close()

        with pytest.raises(MillstreamError, match="ended while it started"):
            starting.result(30)
    for peer in peers:
        peer.close()
    assert peers
    assert member.environment is not None
    for selector in member.environment.selectors:
        with pytest.raises(ValueError, match="closed"):
            selector.fileno()
