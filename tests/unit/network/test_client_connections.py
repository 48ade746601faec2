"""Connections to brokers come and go: handshake, backoff, idleness, moves."""

from __future__ import annotations

from random import Random

import pytest

from millstream.errors import (
    BrokerUnreachable,
)
from millstream.network.client.broker_link import TRANSITIONS, BrokerLink, LinkState
from millstream.network.client.network_client import (
    NetworkClient,
    NetworkClientConfig,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import encode_response
from millstream.protocol.messages import (
    ApiVersionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.protocol.notation import VersionRange
from tests.unit.network.network_clients import CONFIG, Done, connected, make_client
from tests.unit.network.scripted_selector import ScriptedSelector, api_versions


@pytest.fixture
def selector() -> ScriptedSelector:
    return ScriptedSelector()


@pytest.fixture
def client(selector: ScriptedSelector) -> NetworkClient:
    return make_client(selector)


def test_a_request_waits_for_the_connection_and_the_versions(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done)
    connection = selector.last
    assert (connection.host, connection.port) == ("one", 9092)
    assert not connection.requests

    selector.accept(connection)
    client.handle(selector.take(), 1)
    assert connection.apis == ["ApiVersions"]
    selector.tell_versions(connection)
    client.handle(selector.take(), 2)
    assert connection.apis == ["ListGroups"]
    assert connection.requests[0].client_id == "tester"

    selector.answer(connection, ListGroupsResponse(error_code=7))
    client.handle(selector.take(), 3)

    assert isinstance(done.response, ListGroupsResponse)
    assert done.response.error_code == 7


def test_an_older_broker_is_asked_again_in_a_version_it_knows(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    client.is_ready(1, 0)
    connection = selector.last
    selector.accept(connection)
    client.handle(selector.take(), 0)
    asked = connection.requests.popleft()
    assert asked.version == ApiKey.API_VERSIONS.released.highest

    refusal = api_versions({ApiKey.API_VERSIONS: VersionRange(0, 2)}, error_code=35)
    body = encode_response(refusal, 0, asked.correlation_id)
    selector.receive(connection, body[4:])
    client.handle(selector.take(), 0)
    assert [each.version for each in connection.requests] == [2]
    selector.tell_versions(connection, {ApiKey.METADATA: VersionRange(0, 7)})
    client.handle(selector.take(), 0)

    assert client.is_ready(1, 0)
    assert client.version_of(1, ApiKey.METADATA) == 7
    assert client.version_of(1, ApiKey.CONSUMER_GROUP_HEARTBEAT) is None
    assert not client.offers(1, ApiKey.CONSUMER_GROUP_HEARTBEAT)


def test_a_broker_that_names_no_version_is_asked_in_version_0(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    client.is_ready(1, 0)
    connection = selector.last
    selector.accept(connection)
    client.handle(selector.take(), 0)
    asked = connection.requests.popleft()

    refusal = encode_response(ApiVersionsResponse(error_code=35), 0, asked.correlation_id)
    selector.receive(connection, refusal[4:])
    client.handle(selector.take(), 0)

    assert [each.version for each in connection.requests] == [0]


@pytest.mark.parametrize("frame", [b"HTTP/1.1 400 Bad Request", b"\0"])
def test_somebody_who_does_not_speak_kafka_is_told_apart(
    client: NetworkClient, selector: ScriptedSelector, frame: bytes
) -> None:
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done)
    selector.accept(selector.last)
    client.handle(selector.take(), 0)

    selector.receive(selector.last, frame)
    client.handle(selector.take(), 0)

    assert selector.last.is_closed
    assert "does not speak Kafka" in str(done.error)


def test_a_broker_that_refuses_to_tell_its_versions_is_unreachable(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done)
    selector.accept(selector.last)
    client.handle(selector.take(), 0)

    selector.answer(selector.last, ApiVersionsResponse(error_code=31))
    client.handle(selector.take(), 0)

    assert isinstance(done.error, BrokerUnreachable)


def test_waits_between_tries_double_up_to_the_limit(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    now_ms, waits = 0, []
    for _ in range(8):
        assert not client.is_ready(1, now_ms)
        selector.drop(selector.last, "refused")
        client.handle(selector.take(), now_ms)
        wait_ms = client.connection_delay_ms(1, now_ms)
        assert not client.is_ready(1, now_ms + wait_ms - 1)
        waits.append(wait_ms)
        now_ms += wait_ms

    assert len(selector.connections) == 8
    for wait_ms, plain_ms in zip(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000], strict=True):
        assert 0.8 * plain_ms <= wait_ms <= 1.2 * plain_ms
    assert len(set(waits)) > 5, "the waits have chance in them"


def test_a_success_ends_the_row_of_failures(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    now_ms = 0
    for _ in range(6):
        client.is_ready(1, now_ms)
        selector.drop(selector.last)
        client.handle(selector.take(), now_ms)
        now_ms += client.connection_delay_ms(1, now_ms)
    connection = connected(client, selector, now_ms)
    assert client.failures() == []

    selector.drop(connection)
    client.handle(selector.take(), now_ms)

    assert client.connection_delay_ms(1, now_ms) <= 60
    assert client.failures() == ["broker 1 (one:9092): gone"]


def test_a_connection_that_does_not_stand_in_time_is_given_up(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done, timeout_ms=60_000)
    due_ms = client.poll(0)
    assert due_ms is not None
    assert 8_000 <= due_ms <= 12_000

    client.poll(due_ms - 1)
    assert not done.outcomes
    client.poll(due_ms)

    assert selector.last.is_closed
    assert isinstance(done.error, BrokerUnreachable)
    assert not done.error.was_sent


def test_a_broker_that_never_tells_its_versions_is_given_up(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    client.is_ready(1, 0)
    selector.accept(selector.last)
    client.handle(selector.take(), 0)

    client.poll(12_001)

    assert selector.last.is_closed


def test_events_of_a_connection_that_was_given_up_are_stale(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    client.send(1, ListGroupsRequest(), 0, Done(), timeout_ms=10)
    client.poll(10)

    selector.receive(connection, b"\0\0\0\1")
    selector.drop(connection)
    client.handle(selector.take(), 11)

    assert client.connection_delay_ms(1, 11) <= 60


def test_a_connection_that_nobody_uses_is_closed_and_made_again_when_needed(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    assert client.poll(0) == 540_000

    client.poll(540_000)
    assert connection.is_closed
    client.send(1, ListGroupsRequest(), 540_001, Done())

    assert len(selector.connections) == 2, "at once: nothing has failed"


def test_what_failed_before_a_connection_stood_is_no_reason_any_more(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    client.is_ready(1, 0)
    selector.drop(selector.last)
    client.handle(selector.take(), 0)
    assert client.failures() == ["broker 1 (one:9092): gone"]
    connection = connected(client, selector, 1_000)

    client.poll(541_000)

    assert connection.is_closed
    assert client.failures() == []


def test_idle_connections_stay_if_told_so(selector: ScriptedSelector) -> None:
    client = NetworkClient(selector, NetworkClientConfig(idle_ms=-1), Random(1))
    client.set_address(1, "one", 9092)
    connection = connected(client, selector)

    assert client.poll(10**9) is None
    assert not connection.is_closed


def test_a_broker_that_moved_gets_new_requests_at_its_new_address(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    old = connected(client, selector)
    under_way, next_one = Done(), Done()
    client.send(1, ListGroupsRequest(), 0, under_way)

    client.set_address(1, "elsewhere", 9093)
    client.send(1, ListGroupsRequest(), 0, next_one)
    assert selector.last.host == "elsewhere"
    client.poll(0)
    assert not old.is_closed
    selector.answer(old, ListGroupsResponse())
    client.handle(selector.take(), 0)

    assert isinstance(under_way.response, ListGroupsResponse)
    assert old.is_closed


def test_the_same_address_again_changes_nothing(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)

    client.set_address(1, "one", 9092)
    client.poll(0)

    assert client.is_ready(1, 0)
    assert not connection.is_closed


def test_a_forgotten_broker_fails_what_waits_and_finishes_what_is_under_way(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    dones = [Done() for _ in range(3)]
    for done in dones:
        client.send(1, ListGroupsRequest(), 0, done)

    client.forget(1)
    client.poll(0)
    after = Done()
    client.send(1, ListGroupsRequest(), 0, after)
    for _ in range(2):
        selector.answer(connection, ListGroupsResponse())
    client.handle(selector.take(), 0)

    assert isinstance(dones[1].response, ListGroupsResponse)
    assert "not in the cluster any more" in str(dones[2].error)
    assert "not known" in str(after.error)
    assert connection.is_closed
    assert not client.knows(1)
    assert client.poll(0) is None


def test_the_least_loaded_broker_is_asked(selector: ScriptedSelector) -> None:
    client = NetworkClient(selector, CONFIG, Random(1))
    client.set_address(1, "one", 9092)
    connected(client, selector)
    client.set_address(2, "two", 9092)
    client.set_address(9, "aside", 9092, is_member=False)
    assert client.least_loaded(0) == 1, "a connection that stands is worth most"

    client.throttle(1, 100, 0)
    client.is_ready(2, 0)
    assert client.least_loaded(0) in (1, 2)
    client.forget(1)
    selector.drop(selector.last)
    client.handle(selector.take(), 0)

    assert client.least_loaded(0) is None, "the only one left has just failed"
    assert client.least_loaded(100) == 2
    assert client.members() == [2]
    assert client.failures() == ["broker 2 (two:9092): gone"]


def test_brokers_that_were_never_tried_get_their_turn(selector: ScriptedSelector) -> None:
    client = NetworkClient(selector, CONFIG, Random(7))
    for node_id in range(4):
        client.set_address(-1 - node_id, f"host{node_id}", 9092)

    assert {client.least_loaded(0) for _ in range(50)} == {-1, -2, -3, -4}


def test_unknown_brokers_have_no_facts(client: NetworkClient) -> None:
    assert not client.is_ready(5, 0)
    assert not client.is_connected(5)
    assert client.in_flight(5) == 0
    assert client.connection_delay_ms(5, 0) == 0
    assert client.version_of(5, ApiKey.METADATA) is None
    assert client.features_of(5) == ()
    client.throttle(5, 100, 0)
    client.forget(5)


def test_every_state_can_end_in_disconnection() -> None:
    assert TRANSITIONS.keys() == set(LinkState)
    others = set(LinkState) - {LinkState.DISCONNECTED}
    assert all(LinkState.DISCONNECTED in TRANSITIONS[each] for each in others)


def test_another_thread_may_ask_for_failures_while_brokers_come_and_go(
    client: NetworkClient, selector: ScriptedSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.is_ready(1, 0)
    selector.drop(selector.last)
    client.handle(selector.take(), 0)
    name = BrokerLink.name.fget  # type: ignore[attr-defined]  # It is a property.

    def name_while_the_owner_works(link: BrokerLink) -> str:
        client.forget(1)
        client.set_address(7, "seven", 9092)
        return str(name(link))

    monkeypatch.setattr(BrokerLink, "name", property(name_while_the_owner_works))

    assert client.failures() == ["broker 1 (one:9092): gone"]
    assert client.members() == [7]
