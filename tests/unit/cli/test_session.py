"""A session finds a broker, keeps what it knows, and tries again only where that may help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.connection import Address
from millstream.cli.faults import CommandFailed, Unreachable, UsageFault
from millstream.cli.message_session import Session, open_session
from millstream.errors import (
    ClusterAuthorizationFailed,
    InvalidTopic,
    LeaderNotAvailable,
    NotLeaderOrFollower,
)
from millstream.protocol.messages import MetadataRequest, MetadataResponse
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster

if TYPE_CHECKING:
    from millstream.cli.message_session import BrokerConnection


def test_the_first_broker_that_answers_is_enough() -> None:
    cluster = FakeCluster()
    asked: list[Address] = []

    def connect(address: Address, timeout_ms: int) -> BrokerConnection:
        asked.append(address)
        if address.host == "down":
            raise Unreachable("down: no")
        return cluster

    session = Session([Address("down", 1), Address("up", 2)], connect=connect)

    assert session.refresh().cluster_id == "cluster"
    assert asked == [Address("down", 1), Address("up", 2)]


def test_all_that_did_not_answer_are_named() -> None:
    def connect(address: Address, timeout_ms: int) -> BrokerConnection:
        raise Unreachable(f"{address}: no")

    session = Session([Address("a", 1), Address("b", 2)], connect=connect)

    with pytest.raises(Unreachable, match="a:1: no; b:2: no"):
        session.refresh()


def test_a_connection_that_broke_is_replaced_once() -> None:
    cluster = FakeCluster()
    cluster.errors[MetadataRequest] = [Unreachable("gone")]

    assert cluster.message_session().refresh().controller_id == 1
    assert cluster.connect_count == 2


def test_a_topic_is_asked_for_once() -> None:
    cluster = FakeCluster(partitions=3)
    with cluster.message_session() as session:
        assert len(session.topic(TOPIC).partitions) == 3
        assert session.topic(TOPIC) is session.topic(TOPIC)

    assert len(cluster.requests) == 1


def test_a_topic_that_is_not_there_is_answered_with_its_neighbour_or_a_way() -> None:
    session = FakeCluster().message_session()

    with pytest.raises(CommandFailed, match="did you mean 'orders'"):
        session.topic("ordres")
    with pytest.raises(CommandFailed, match="millstream topics create zzz"):
        session.topic("zzz")


def test_what_a_broker_says_about_a_topic_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    metadata = cluster._metadata

    def refuse(names: list[str | None] | None) -> MetadataResponse:
        response = metadata(names)
        response.topics[0].error_code = InvalidTopic.code
        return response

    monkeypatch.setattr(cluster, "_metadata", refuse)

    with pytest.raises(InvalidTopic):
        cluster.message_session().topic(TOPIC)


def test_a_partition_that_is_not_there_is_told() -> None:
    with pytest.raises(CommandFailed, match="has no partition 7; it has 1, from 0 on"):
        FakeCluster().message_session().leader(TOPIC, 7)


def test_a_partition_without_a_leader_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    session = cluster.message_session()
    metadata = cluster._metadata

    def elect(names: list[str | None] | None) -> MetadataResponse:
        response = metadata(names)
        if len(cluster.requests) < 3:
            response.topics[0].partitions[0].leader_id = -1 if len(cluster.requests) < 2 else 9
        return response

    monkeypatch.setattr(cluster, "_metadata", elect)

    assert session.call_leader(TOPIC, 0, lambda connection: connection.address) == cluster.address


def test_it_gives_up_after_its_timeout() -> None:
    session = FakeCluster().message_session(timeout_ms=1)

    def attempt() -> None:
        raise NotLeaderOrFollower

    with pytest.raises(NotLeaderOrFollower):
        session.retrying(attempt)


def test_what_cannot_get_better_is_raised_at_once() -> None:
    attempts: list[None] = []

    def attempt() -> None:
        attempts.append(None)
        raise ClusterAuthorizationFailed

    with pytest.raises(ClusterAuthorizationFailed):
        FakeCluster().message_session().retrying(attempt)
    assert len(attempts) == 1


def test_a_first_address_that_does_not_answer_is_not_tried_for_long() -> None:
    attempts: list[None] = []

    def attempt() -> None:
        attempts.append(None)
        raise Unreachable("nobody")

    with pytest.raises(Unreachable):
        FakeCluster().message_session().retrying(attempt)
    assert len(attempts) == 1


def test_a_cluster_that_answered_once_is_waited_for() -> None:
    cluster = FakeCluster()
    down = [True, True, True]

    def connect(address: Address, timeout_ms: int) -> BrokerConnection:
        if session.timeout_ms == 1001 and down:
            down.pop()
            raise Unreachable("restarting")
        return cluster

    session = Session([Address("first", 1)], connect=connect, sleep=lambda ms: None)
    session.refresh()
    session.forget()
    session.timeout_ms = 1001

    assert session.retrying(session.refresh).cluster_id == "cluster"
    assert down == []


def test_other_members_are_asked_when_the_first_is_gone() -> None:
    cluster = FakeCluster()
    asked: list[Address] = []

    def connect(address: Address, timeout_ms: int) -> BrokerConnection:
        asked.append(address)
        if len(asked) == 2:
            raise Unreachable("gone")
        return cluster

    session = Session([Address("first", 1)], connect=connect, sleep=lambda ms: None)
    session.refresh()
    session.forget()
    session.refresh()

    assert asked == [Address("first", 1), Address("first", 1), cluster.address]


def test_an_unknown_broker_may_be_a_matter_of_time() -> None:
    with pytest.raises(LeaderNotAvailable, match="broker 5"):
        FakeCluster().message_session().broker(5)


@pytest.mark.parametrize(
    ("bootstrap", "timeout", "says"),
    [("a:b", 1.0, "--bootstrap-server"), ("a", 0.0, "--timeout"), ("a", -1.0, "--timeout")],
)
def test_options_that_make_no_session_are_refused(
    bootstrap: str, timeout: float, says: str
) -> None:
    with pytest.raises(UsageFault, match=says):
        open_session(bootstrap, timeout)


def test_opening_a_session_connects_nowhere_yet() -> None:
    with open_session("localhost:1,localhost:2", 0.5) as session:
        assert session.timeout_ms == 500
