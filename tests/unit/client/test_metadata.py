"""What a client knows of the cluster, when it asks again, and how it finds its way back."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from millstream.client.addresses import Address
from millstream.client.metadata import Broker, MetadataSnapshot
from millstream.client.router import ANY
from millstream.errors import (
    BootstrapFailed,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ListGroupsRequest,
    MetadataRequest,
    MetadataResponse,
)
from millstream.types import Uuid
from tests.unit.client.scripted_cluster import ScriptedCluster

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.protocol.message import Message


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster(broker_count=3)


def test_the_first_answer_names_the_brokers_and_retires_the_bootstrap_addresses(
    cluster: ScriptedCluster,
) -> None:
    runtime = cluster.runtime()
    assert runtime.network.members() == [-1]

    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)

    snapshot = runtime.metadata.snapshot
    assert snapshot.cluster_id == "scripted"
    assert snapshot.brokers[2] == Broker(2, "broker2", 9092)
    assert runtime.network.members() == [1, 2, 3]
    (asked,) = cluster.asked
    assert asked.message == MetadataRequest(topics=[], allow_auto_topic_creation=False)


def test_a_wanted_topic_is_asked_for_at_once(cluster: ScriptedCluster) -> None:
    orders = cluster.add_topic("orders", leaders=[1, 2])
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])

    cluster.run_until(runtime, lambda: "orders" in runtime.metadata.snapshot.topics)

    snapshot = runtime.metadata.snapshot
    leader = snapshot.leader("orders", 1)
    assert leader is not None
    assert leader.leader_id == 2
    assert snapshot.topic_by_id(orders.topic_id) is snapshot.topics["orders"]
    assert snapshot.leader("orders", 2) is None
    assert snapshot.leader("others", 0) is None


def test_metadata_is_asked_for_again_when_it_is_old(cluster: ScriptedCluster) -> None:
    runtime = cluster.runtime(metadata_max_age_ms=10_000)
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 3)

    times = [each.at_ms for each in cluster.asked if each.api is ApiKey.METADATA]
    assert [after - before for before, after in pairwise(times)] == [10_000, 10_000]


def test_requests_for_an_update_are_not_faster_than_the_backoff(cluster: ScriptedCluster) -> None:
    runtime = cluster.runtime()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    for _ in range(5):
        wanted = runtime.metadata.request_update()
        cluster.run_until(runtime, lambda: runtime.metadata.updates >= wanted)  # noqa: B023

    assert runtime.metadata.updates == 6
    assert cluster.clock.monotonic_ms() >= 500


def test_a_topic_that_nobody_knows_is_asked_for_more_and_more_rarely(
    cluster: ScriptedCluster,
) -> None:
    runtime = cluster.runtime()
    runtime.metadata.want(["soon"])
    cluster.run_for(runtime, 10_000)
    assert isinstance(runtime.metadata.snapshot.topics["soon"].error, UnknownTopicOrPartition)
    assert cluster.count(ApiKey.METADATA) < 20

    cluster.add_topic("soon")
    cluster.run_for(runtime, 1_300)

    assert runtime.metadata.snapshot.leader("soon", 0) is not None
    cluster.asked.clear()
    cluster.run_for(runtime, 10_000)
    assert not cluster.asked, "all is well"


def test_a_new_topic_does_not_wait_because_others_were_asked_for_in_vain(
    cluster: ScriptedCluster,
) -> None:
    runtime = cluster.runtime()
    runtime.metadata.want(["gone"])
    cluster.run_for(runtime, 10_000)
    cluster.add_topic("orders")
    asked = cluster.count(ApiKey.METADATA)

    runtime.metadata.want(["orders"])
    cluster.run_until(runtime, lambda: cluster.count(ApiKey.METADATA) > asked)
    (question,) = cluster.asked[-1:]
    cluster.run_until(runtime, lambda: "orders" in runtime.metadata.snapshot.topics)

    assert question.at_ms <= 10_001, "at once"
    assert cluster.count(ApiKey.METADATA) == asked + 1


def test_a_partition_without_a_leader_is_watched(cluster: ScriptedCluster) -> None:
    topic = cluster.add_topic("orders", leaders=[-1])
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])
    cluster.run_for(runtime, 1_000)
    assert runtime.metadata.snapshot.leader("orders", 0) is None

    topic.leaders[0], topic.epochs[0] = 3, 1
    cluster.run_for(runtime, 1_300)

    leader = runtime.metadata.snapshot.leader("orders", 0)
    assert leader is not None
    assert leader.leader_id == 3


def test_an_error_that_stays_is_kept_with_the_topic_and_not_asked_about(
    cluster: ScriptedCluster,
) -> None:
    cluster.add_topic("secret").error_code = 29
    runtime = cluster.runtime()
    runtime.metadata.want(["secret"])
    cluster.run_for(runtime, 5_000)

    assert isinstance(runtime.metadata.snapshot.topics["secret"].error, TopicAuthorizationFailed)
    assert cluster.count(ApiKey.METADATA) <= 2


def test_an_older_epoch_does_not_replace_a_newer_one(cluster: ScriptedCluster) -> None:
    topic = cluster.add_topic("orders", leaders=[1], epoch=5)
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)

    topic.leaders[0], topic.epochs[0] = 2, 4
    runtime.metadata.request_update()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 2)
    leader = runtime.metadata.snapshot.leader("orders", 0)
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (1, 5)

    topic.topic_id = Uuid(b"a new topic  id.")
    runtime.metadata.request_update()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 3)

    leader = runtime.metadata.snapshot.leader("orders", 0)
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (2, 4), "it was made anew"


def test_a_hint_of_a_new_leader_counts_at_once(cluster: ScriptedCluster) -> None:
    cluster.add_topic("orders", leaders=[1], epoch=5)
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])
    seen: list[tuple[MetadataSnapshot, MetadataSnapshot]] = []
    runtime.metadata.subscribe(lambda old, new, _: seen.append((old, new)))
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    metadata = runtime.metadata

    assert not metadata.learn_leader("orders", 0, 2, 5, None, 0), "not newer"
    assert not metadata.learn_leader("orders", 0, 9, 6, None, 0), "nobody knows broker 9"
    assert not metadata.learn_leader("others", 0, 2, 6, None, 0)
    assert metadata.learn_leader("orders", 0, 9, 6, Broker(9, "broker9", 9092), 0)

    leader = metadata.snapshot.leader("orders", 0)
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (9, 6)
    assert runtime.network.knows(9)
    assert len(seen) == 2
    assert seen[1] == (seen[0][1], metadata.snapshot)


def test_topics_that_are_not_wanted_any_more_are_forgotten(cluster: ScriptedCluster) -> None:
    cluster.add_topic("a")
    cluster.add_topic("b")
    runtime = cluster.runtime()
    runtime.metadata.want(["a", "b"])
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)

    runtime.metadata.forget(["a"])
    runtime.metadata.request_update()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 2)

    assert set(runtime.metadata.snapshot.topics) == {"b"}


def test_borrowed_topics_are_given_back_when_unused(cluster: ScriptedCluster) -> None:
    cluster.add_topic("once")
    runtime = cluster.runtime()
    runtime.metadata.borrow(["once"])
    cluster.run_for(runtime, 59_000)
    assert runtime.metadata.followed == {"once"}

    runtime.metadata.request_update()
    cluster.run_for(runtime, 2_000)
    runtime.run_once(0)

    assert runtime.metadata.followed == frozenset()


def test_all_topics_can_be_followed(cluster: ScriptedCluster) -> None:
    cluster.add_topic("a")
    cluster.add_topic("b")
    runtime = cluster.runtime()
    runtime.metadata.want_all()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    assert set(runtime.metadata.snapshot.topics) == {"a", "b"}

    del cluster.topics["a"]
    runtime.metadata.request_update()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 2)

    assert set(runtime.metadata.snapshot.topics) == {"b"}


def test_a_connection_that_is_lost_makes_what_is_known_stale(cluster: ScriptedCluster) -> None:
    topic = cluster.add_topic("orders", leaders=[2])
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    runtime.network.is_ready(2, cluster.clock.monotonic_ms())
    cluster.run_for(runtime, 1_000)

    cluster.stop("broker2")
    topic.leaders[0], topic.epochs[0] = 3, 1
    cluster.run_for(runtime, 1_000)

    leader = runtime.metadata.snapshot.leader("orders", 0)
    assert leader is not None
    assert leader.leader_id == 3, "although nobody waited for an answer of broker 2"


def test_every_bootstrap_address_is_tried(cluster: ScriptedCluster) -> None:
    cluster.stop("broker1")
    cluster.stop("broker2")
    servers = ("broker1:9092", "broker2:9092", "broker3:9092")
    runtime = cluster.runtime(bootstrap_servers=servers)

    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1, within_ms=1_000)

    assert runtime.metadata.snapshot.brokers.keys() == {1, 2, 3}


def test_when_nobody_answers_the_failure_names_every_address(cluster: ScriptedCluster) -> None:
    for each in ("broker1", "broker2"):
        cluster.stop(each)
    runtime = cluster.runtime(bootstrap_servers=("broker1:9092", "broker2:9093"))
    cluster.run_for(runtime, 3_000)

    failure = runtime.metadata.failure()
    assert isinstance(failure, BootstrapFailed)
    assert "broker1:9092: refused" in str(failure)
    assert "broker2:9093: refused" in str(failure)
    assert len(cluster.connects) < 20, "it backs off"


def test_before_anything_was_tried_the_failure_names_the_addresses(
    cluster: ScriptedCluster,
) -> None:
    assert "broker1:9092" in str(cluster.runtime().metadata.failure())
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_a_client_whose_brokers_are_all_gone_asks_the_bootstrap_addresses_again(
    cluster: ScriptedCluster,
) -> None:
    cluster.members = [2, 3]
    runtime = cluster.runtime()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    for each in ("broker2", "broker3"):
        cluster.stop(each)
    cluster.members = [1]
    runtime.metadata.request_update()

    cluster.run_until(runtime, lambda: runtime.metadata.updates == 2, within_ms=5_000)

    assert runtime.metadata.snapshot.brokers.keys() == {1}


def test_a_client_that_must_not_rebootstrap_stays_with_the_brokers_it_knew(
    cluster: ScriptedCluster,
) -> None:
    cluster.members = [2, 3]
    runtime = cluster.runtime(metadata_recovery_strategy="none")
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    for each in ("broker2", "broker3"):
        cluster.stop(each)
    runtime.metadata.request_update()
    cluster.connects.clear()

    cluster.run_for(runtime, 400_000)

    assert {host for host, _ in cluster.connects} == {"broker2", "broker3"}


def test_brokers_that_answer_nothing_useful_for_long_lead_to_the_bootstrap_addresses(
    cluster: ScriptedCluster,
) -> None:
    cluster.members = [2]
    runtime = cluster.runtime(metadata_recovery_rebootstrap_trigger_ms=20_000)
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    answer = cluster._metadata

    def only_the_first(node_id: int, request: Message) -> Message:
        return answer(node_id, request) if node_id == 1 else MetadataResponse()

    cluster.on(ApiKey.METADATA, only_the_first)
    runtime.metadata.request_update()
    cluster.run_for(runtime, 19_000)
    assert runtime.metadata.updates == 1

    cluster.run_for(runtime, 3_000)

    assert runtime.metadata.updates == 2


def test_a_broker_can_send_the_client_back_to_the_bootstrap_addresses(
    cluster: ScriptedCluster,
) -> None:
    cluster.members = [2]
    runtime = cluster.runtime()
    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)
    cluster.metadata_error = 129
    runtime.metadata.request_update()
    cluster.run_until(runtime, lambda: runtime.network.members()[0] < 0, within_ms=5_000)
    cluster.metadata_error = 0

    cluster.run_until(runtime, lambda: runtime.metadata.updates == 2, within_ms=5_000)


def test_an_old_broker_is_asked_in_its_version(cluster: ScriptedCluster) -> None:
    cluster.versions = {ApiKey.METADATA: ApiKey.METADATA.versions._replace(highest=7)}
    cluster.add_topic("orders")
    runtime = cluster.runtime()
    runtime.metadata.want(["orders"])

    cluster.run_until(runtime, lambda: runtime.metadata.updates == 1)

    assert cluster.asked[0].version == 7
    assert runtime.metadata.snapshot.leader("orders", 0) is not None
    assert runtime.metadata.snapshot.topics["orders"].topic_id == Uuid.ZERO


def test_a_runtime_that_is_closed_ends_its_calls_and_its_selector(
    cluster: ScriptedCluster,
) -> None:
    runtime = cluster.runtime()
    outcomes: list[Message | MillstreamError] = []

    def ask(now_ms: int) -> None:
        runtime.router.call(
            ListGroupsRequest(),
            ANY,
            lambda outcome, _: outcomes.append(outcome),
            deadline_ms=now_ms + 1_000,
            now_ms=now_ms,
        )

    runtime.post(ask)
    assert cluster.wakes == 1

    runtime.close()
    runtime.close()

    assert [type(each).__name__ for each in outcomes] == ["ClientClosed"]
    assert cluster.is_shut_down
