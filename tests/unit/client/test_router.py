"""Calls find whoever is responsible, are tried again, and end exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.router import ANY, CONTROLLER, Leader, Node
from millstream.errors import (
    BootstrapFailed,
    OperationTimeout,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    EndTxnResponse,
    ListGroupsResponse,
)
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


def test_any_broker_may_answer_even_before_the_cluster_is_known(cluster: ScriptedCluster) -> None:
    runtime = cluster.runtime()

    asking = Asking(runtime, ANY)
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse()]


def test_the_controller_is_asked_and_followed_when_it_moves(cluster: ScriptedCluster) -> None:
    cluster.controller_id = 2

    def answer(node_id: int, _request: Message) -> ListGroupsResponse:
        if node_id == 3:
            return ListGroupsResponse()
        cluster.controller_id = 3
        return ListGroupsResponse(error_code=41)

    cluster.on(ApiKey.LIST_GROUPS, answer)
    runtime = cluster.runtime()

    asking = Asking(runtime, CONTROLLER)
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse()]
    asked = nodes_asked(cluster)
    assert asked[0] == 2
    assert asked[-1] == 3


def test_a_controller_that_nobody_knows_is_waited_for(cluster: ScriptedCluster) -> None:
    cluster.controller_id = -1
    runtime = cluster.runtime()
    asking = Asking(runtime, CONTROLLER)
    cluster.run_for(runtime, 1_000)
    assert not asking.is_done

    cluster.controller_id = 1
    finish(cluster, runtime, asking)

    assert nodes_asked(cluster) == [1]


def test_one_broker_is_asked_by_its_id(cluster: ScriptedCluster) -> None:
    runtime = cluster.runtime()

    asking = Asking(runtime, Node(3))
    finish(cluster, runtime, asking)

    assert nodes_asked(cluster) == [3]


def test_a_broker_that_is_not_in_the_cluster_is_an_error(cluster: ScriptedCluster) -> None:
    runtime = cluster.runtime()

    asking = Asking(runtime, Node(9))
    finish(cluster, runtime, asking)

    assert "there is no broker 9; the cluster has 1, 2, 3" in str(asking.error)


def test_the_leader_is_asked_and_followed_when_it_moves(cluster: ScriptedCluster) -> None:
    topic = cluster.add_topic("orders", leaders=[1])

    def answer(node_id: int, _request: Message) -> ListGroupsResponse:
        if node_id == 3:
            return ListGroupsResponse()
        topic.leaders[0], topic.epochs[0] = 3, 1
        return ListGroupsResponse(error_code=6)

    cluster.on(ApiKey.LIST_GROUPS, answer)
    runtime = cluster.runtime()

    asking = Asking(runtime, Leader("orders", 0))
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse()]
    assert nodes_asked(cluster)[-1] == 3


@pytest.mark.parametrize("target", [Leader("nowhere", 0), Leader("orders", 7)])
def test_what_nobody_knows_for_two_seconds_does_not_exist(
    cluster: ScriptedCluster, target: Leader
) -> None:
    cluster.add_topic("orders")
    runtime = cluster.runtime()

    asking = Asking(runtime, target, timeout_ms=60_000)
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, UnknownTopicOrPartition)
    assert 2_000 <= cluster.clock.monotonic_ms() < 4_000


def test_a_topic_that_must_not_be_seen_is_an_error_at_once(cluster: ScriptedCluster) -> None:
    cluster.add_topic("secret", leaders=[]).error_code = 29
    runtime = cluster.runtime()

    asking = Asking(runtime, Leader("secret", 0))
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, TopicAuthorizationFailed)
    assert cluster.clock.monotonic_ms() < 1_000


def test_a_partition_without_a_leader_is_waited_for_until_the_deadline(
    cluster: ScriptedCluster,
) -> None:
    cluster.add_topic("orders", leaders=[-1])
    runtime = cluster.runtime()

    asking = Asking(runtime, Leader("orders", 0), timeout_ms=5_000)
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, OperationTimeout)
    assert isinstance(asking.error, TimeoutError)
    assert 5_000 <= cluster.clock.monotonic_ms() < 7_000


def test_retriable_answers_are_tried_again_with_growing_waits(cluster: ScriptedCluster) -> None:
    cluster.on(ApiKey.LIST_GROUPS, lambda _node, _request: ListGroupsResponse(error_code=14))
    runtime = cluster.runtime()

    asking = Asking(runtime, ANY, timeout_ms=10_000)
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, OperationTimeout)
    assert "ListGroups: no answer within 10 s" in str(asking.error)
    times = [each.at_ms for each in cluster.asked if each.api is ApiKey.LIST_GROUPS]
    assert 10 < len(times) < 20
    assert max(times) < 10_000


def test_an_error_that_stays_is_an_answer(cluster: ScriptedCluster) -> None:
    cluster.on(ApiKey.LIST_GROUPS, lambda _node, _request: ListGroupsResponse(error_code=42))
    runtime = cluster.runtime()

    asking = Asking(runtime, ANY)
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse(error_code=42)]


def test_what_the_brokers_are_too_old_for_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.versions = BEFORE_BATCHES
    runtime = cluster.runtime()

    asking = Asking(runtime, ANY)
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, UnsupportedVersion)


def test_a_lost_connection_is_survived(cluster: ScriptedCluster) -> None:
    def stumble(node_id: int, _request: Message) -> Message | None:
        if len(nodes_asked(cluster)) == 1:
            cluster.stop(f"broker{node_id}")
            return None
        return ListGroupsResponse()

    cluster.on(ApiKey.LIST_GROUPS, stumble)
    runtime = cluster.runtime()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)

    asking = Asking(runtime, ANY)
    finish(cluster, runtime, asking)

    assert asking.outcomes == [ListGroupsResponse()]
    first, second = nodes_asked(cluster)
    assert first != second


def test_without_any_broker_the_deadline_names_the_reasons(cluster: ScriptedCluster) -> None:
    cluster.stop("broker1")
    runtime = cluster.runtime()

    asking = Asking(runtime, ANY, timeout_ms=1_000)
    finish(cluster, runtime, asking)

    assert isinstance(asking.error, BootstrapFailed)
    assert "broker1:9092: refused" in str(asking.error)


def test_an_answer_after_the_deadline_changes_nothing_and_costs_no_connection(
    cluster: ScriptedCluster,
) -> None:
    cluster.on(ApiKey.LIST_GROUPS, lambda _node, _request: None)
    runtime = cluster.runtime()
    asking = Asking(runtime, Node(1), timeout_ms=1_000)
    cancelled = Asking(runtime, Node(1), timeout_ms=1_000)
    cancelled.call.cancel()

    finish(cluster, runtime, asking)

    assert isinstance(asking.error, OperationTimeout)
    assert not cancelled.outcomes
    assert runtime.network.is_connected(1)
