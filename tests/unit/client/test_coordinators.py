"""Who coordinates a group or transaction is found, remembered, and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.router import Coordinator, Node
from millstream.errors import (
    GroupAuthorizationFailed,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorResponse,
    ListGroupsResponse,
)
from millstream.protocol.messages.find_coordinator import Coordinator as Found
from tests.unit.client.askings import (
    BEFORE_BATCHES,
    Asking,
    find_coordinator,
    finish,
    nodes_asked,
)
from tests.unit.client.scripted_cluster import ScriptedCluster

if TYPE_CHECKING:
    from millstream.protocol.message import Message


@pytest.fixture
def cluster() -> ScriptedCluster:
    cluster = ScriptedCluster(broker_count=3)
    cluster.on(ApiKey.LIST_GROUPS, lambda _node, _request: ListGroupsResponse())
    cluster.on(ApiKey.END_TXN, lambda _node, _request: EndTxnResponse())
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(lambda key: (2, 0)))
    return cluster


def test_coordinators_are_looked_up_together_and_remembered(cluster: ScriptedCluster) -> None:
    places = {"a": (2, 0), "b": (3, 0), "c": (2, 0)}
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(places.__getitem__))
    cluster.on(ApiKey.DESCRIBE_GROUPS, lambda _node, _request: DescribeGroupsResponse())
    runtime = cluster.runtime()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    finish(cluster, runtime, Asking(runtime, Node(1)), Asking(runtime, Node(2)))
    finish(cluster, runtime, Asking(runtime, Node(3)))

    askings = [
        Asking(runtime, Coordinator("group", key), DescribeGroupsRequest(groups=[key]))
        for key in places
    ]
    finish(cluster, runtime, *askings)

    assert cluster.count(ApiKey.FIND_COORDINATOR) == 1
    assert sorted(nodes_asked(cluster, ApiKey.DESCRIBE_GROUPS)) == [2, 2, 3]
    node_id = runtime.router.coordinator("group", "b")
    assert node_id is not None
    assert node_id > 3, "coordinators have connections of their own"
    assert runtime.network.is_connected(node_id)


def test_older_brokers_are_asked_for_one_coordinator_at_a_time(cluster: ScriptedCluster) -> None:
    cluster.versions = BEFORE_BATCHES
    runtime = cluster.runtime()
    askings = [
        Asking(runtime, Coordinator("transaction", key), EndTxnRequest()) for key in ("a", "b")
    ]

    finish(cluster, runtime, *askings)

    assert cluster.count(ApiKey.FIND_COORDINATOR) == 2
    assert nodes_asked(cluster, ApiKey.END_TXN) == [2, 2]


def test_a_coordinator_that_moved_is_looked_up_anew(cluster: ScriptedCluster) -> None:
    place = {"g": (2, 0)}
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(place.__getitem__))

    def answer(node_id: int, _request: Message) -> ListGroupsResponse:
        place["g"] = (3, 0)
        return ListGroupsResponse(error_code=0 if node_id == 3 else 16)

    cluster.on(ApiKey.LIST_GROUPS, answer)
    runtime = cluster.runtime()

    asking = Asking(runtime, Coordinator("group", "g"))
    finish(cluster, runtime, asking)

    assert nodes_asked(cluster) == [2, 3]
    runtime.router.forget_coordinator("group", "g")
    assert runtime.router.coordinator("group", "g") is None


def test_a_coordinator_that_is_not_there_yet_is_waited_for(cluster: ScriptedCluster) -> None:
    place = {"g": (-1, 15)}
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(place.__getitem__))
    runtime = cluster.runtime()
    asking = Asking(runtime, Coordinator("group", "g"))
    cluster.run_for(runtime, 2_000)
    assert not asking.is_done
    assert cluster.count(ApiKey.FIND_COORDINATOR) < 10

    place["g"] = (2, 0)
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse()]


def test_a_group_that_must_not_be_seen_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(lambda _key: (-1, 30)))
    runtime = cluster.runtime()

    asking = Asking(runtime, Coordinator("group", "g"))
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, GroupAuthorizationFailed)


def test_a_key_that_the_answer_lacks_is_asked_for_again(cluster: ScriptedCluster) -> None:
    answers = [FindCoordinatorResponse(coordinators=[Found(key="other", node_id=1)])]
    good = find_coordinator(lambda _key: (2, 0))
    cluster.on(
        ApiKey.FIND_COORDINATOR,
        lambda node, request: answers.pop() if answers else good(node, request),
    )
    runtime = cluster.runtime()
    runtime.router.find_coordinator("share", "g:id:0")

    cluster.run_until(runtime, lambda: runtime.router.coordinator("share", "g:id:0") is not None)

    assert cluster.count(ApiKey.FIND_COORDINATOR) == 2


def test_a_lost_coordinator_is_looked_up_anew(cluster: ScriptedCluster) -> None:
    place = {"g": (2, 0)}
    cluster.on(ApiKey.FIND_COORDINATOR, find_coordinator(place.__getitem__))
    runtime = cluster.runtime()
    finish(cluster, runtime, Asking(runtime, Coordinator("group", "g")))
    cluster.stop("broker2")
    place["g"] = (3, 0)

    asking = Asking(runtime, Coordinator("group", "g"))
    finish(cluster, runtime, asking)

    assert nodes_asked(cluster)[-1] == 3
