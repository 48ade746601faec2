"""Connections to brokers and requests over them, without a socket and with manual time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    BrokerUnreachable,
    ClientClosed,
    DecodeError,
    MillstreamError,
    UnsupportedVersion,
)
from millstream.network.broker_link import TRANSITIONS, LinkState
from millstream.network.network_client import (
    NetworkClient,
    NetworkClientConfig,
    VersionedRequest,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import encode_response
from millstream.protocol.message import Message
from millstream.protocol.messages import (
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.protocol.notation import VersionRange
from tests.unit.network.scripted_selector import ScriptedSelector, api_versions

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer
    from tests.unit.network.scripted_selector import Connection

CONFIG = NetworkClientConfig(client_id="tester", request_timeout_ms=30_000, max_in_flight=2)


class Done:
    """A callback that remembers how it was called."""

    def __init__(self) -> None:
        self.outcomes: list[Message | MillstreamError] = []

    def __call__(self, outcome: Message | MillstreamError, now_ms: int) -> None:
        self.outcomes.append(outcome)

    @property
    def response(self) -> Message:
        (outcome,) = self.outcomes
        assert isinstance(outcome, Message)
        return outcome

    @property
    def error(self) -> MillstreamError:
        (outcome,) = self.outcomes
        assert isinstance(outcome, MillstreamError)
        return outcome


@pytest.fixture
def selector() -> ScriptedSelector:
    return ScriptedSelector()


@pytest.fixture
def client(selector: ScriptedSelector) -> NetworkClient:
    client = NetworkClient(selector, CONFIG, Random(1))
    client.set_address(1, "one", 9092)
    return client


def connected(client: NetworkClient, selector: ScriptedSelector, now_ms: int = 0) -> Connection:
    """Broker 1, ready."""
    assert not client.is_ready(1, now_ms)
    connection = selector.last
    selector.accept(connection)
    client.handle(selector.take(), now_ms)
    selector.tell_versions(connection)
    client.handle(selector.take(), now_ms)
    assert client.is_ready(1, now_ms)
    return connection


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
    assert client.last_failure(1) == ""

    selector.drop(connection)
    client.handle(selector.take(), now_ms)

    assert client.connection_delay_ms(1, now_ms) <= 60
    assert client.last_failure(1) == "broker 1 (one:9092): gone"


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


def test_no_more_than_the_limit_are_in_flight_and_the_rest_follow_in_order(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    for generation in range(4):
        client.send(1, HeartbeatRequest(generation_id=generation), 0, Done())
    assert len(connection.requests) == 2
    assert client.in_flight(1) == 4
    assert not client.is_ready(1, 0)

    selector.answer(connection, HeartbeatResponse())
    client.handle(selector.take(), 0)
    selector.answer(connection, HeartbeatResponse())
    client.handle(selector.take(), 0)

    sent = [each.message for each in connection.requests]
    assert [m.generation_id for m in sent if isinstance(m, HeartbeatRequest)] == [2, 3]


def test_a_request_that_is_not_answered_takes_the_connection_with_it(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    late, other, waiting = Done(), Done(), Done()
    client.send(1, ListGroupsRequest(), 0, late, timeout_ms=1_000)
    client.send(1, MetadataRequest(), 0, other)
    client.send(1, MetadataRequest(), 0, waiting)
    assert client.poll(0) == 1_000

    client.poll(999)
    assert not late.outcomes
    client.poll(1_000)

    assert connection.is_closed
    assert "no answer to ListGroups in 1 s" in str(late.error)
    assert isinstance(other.error, BrokerUnreachable)
    assert other.error.was_sent
    assert isinstance(waiting.error, BrokerUnreachable)
    assert not waiting.error.was_sent


def test_a_request_that_waits_for_too_long_ends_without_hanging_up(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    for _ in range(2):
        client.send(1, MetadataRequest(), 0, Done())
    waiting = Done()
    client.send(1, ListGroupsRequest(), 0, waiting, timeout_ms=100)

    client.poll(100)

    assert "could not be sent in time" in str(waiting.error)
    assert not connection.is_closed


def test_what_a_lost_connection_had_under_way_fails_retriably(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done)

    selector.drop(connection, "reset")
    client.handle(selector.take(), 5)

    assert isinstance(done.error, BrokerUnreachable)
    assert done.error.retriable
    assert str(done.error) == "broker 1 (one:9092): reset"
    assert not client.is_connected(1)


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


def test_a_throttled_broker_is_left_alone_for_as_long_as_it_asked(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    client.send(1, ListGroupsRequest(), 0, Done())
    selector.answer(connection, ListGroupsResponse(throttle_time_ms=200))
    client.handle(selector.take(), 1_000)
    assert not client.is_ready(1, 1_199)
    assert client.connection_delay_ms(1, 1_150) == 50

    client.send(1, ListGroupsRequest(), 1_100, Done())
    assert not connection.requests
    assert client.poll(1_100) == 1_200
    client.poll(1_200)

    assert connection.apis == ["ListGroups"]


def test_a_connection_that_nobody_uses_is_closed_and_made_again_when_needed(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    assert client.poll(0) == 540_000

    client.poll(540_000)
    assert connection.is_closed
    client.send(1, ListGroupsRequest(), 540_001, Done())

    assert len(selector.connections) == 2, "at once: nothing has failed"


def test_idle_connections_stay_if_told_so(selector: ScriptedSelector) -> None:
    client = NetworkClient(selector, NetworkClientConfig(idle_ms=-1), Random(1))
    client.set_address(1, "one", 9092)
    connection = connected(client, selector)

    assert client.poll(10**9) is None
    assert not connection.is_closed


def test_a_request_without_a_response_is_done_when_it_is_handed_over(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done, expects_response=False)

    assert isinstance(done.response, ListGroupsResponse)
    assert connection.apis == ["ListGroups"]
    assert client.in_flight(1) == 0


def test_a_version_that_the_broker_lacks_is_an_error_of_the_request_only(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    client.is_ready(1, 0)
    selector.accept(selector.last)
    client.handle(selector.take(), 0)
    selector.tell_versions(selector.last, {ApiKey.METADATA: VersionRange(0, 7)})
    client.handle(selector.take(), 0)
    lacking, too_new, fine = Done(), Done(), Done()

    client.send(1, ListGroupsRequest(), 0, lacking)
    client.send(1, MetadataRequest(), 0, too_new, version=9)
    client.send(1, MetadataRequest(), 0, fine, version=5)

    assert isinstance(lacking.error, UnsupportedVersion)
    assert isinstance(too_new.error, UnsupportedVersion)
    assert [each.version for each in selector.last.requests] == [5]


def test_a_request_can_be_built_for_the_version_that_was_agreed_on(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    built: list[int] = []

    def build(version: int) -> MetadataRequest:
        built.append(version)
        return MetadataRequest()

    client.send(1, VersionedRequest(ApiKey.METADATA, build), 0, Done())
    client.send(1, VersionedRequest(ApiKey.METADATA, build, highest=4), 0, Done())

    assert built == [13, 4]
    assert [each.version for each in connection.requests] == [13, 4]


def test_a_frame_goes_out_as_it_is_and_its_answer_comes_back_as_it_is(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    seen: list[tuple[ReadableBuffer | MillstreamError, int]] = []
    body = MetadataRequest(topics=None).encode(12)
    client.send_frame(
        1,
        ApiKey.METADATA,
        12,
        [body[:1], body[1:]],
        0,
        lambda frame, at, _: seen.append((frame, at)),
    )
    assert connection.requests[0].message == MetadataRequest(topics=None)

    selector.answer(connection, MetadataResponse(cluster_id="c"))
    client.handle(selector.take(), 0)

    ((frame, position),) = seen
    assert not isinstance(frame, MillstreamError)
    assert MetadataResponse.decode(frame, 12, position).cluster_id == "c"


def test_a_frame_without_an_answer_is_done_with_nothing(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connected(client, selector)
    seen: list[object] = []
    body = MetadataRequest().encode(12)

    client.send_frame(
        1,
        ApiKey.METADATA,
        12,
        [body],
        0,
        lambda frame, _at, _now: seen.append(frame),
        expects_response=False,
    )

    assert seen == [b""]


def test_a_frame_fails_with_its_connection(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    seen: list[object] = []
    body = MetadataRequest().encode(12)
    client.send_frame(
        1, ApiKey.METADATA, 12, [body], 0, lambda frame, _at, _now: seen.append(frame)
    )

    selector.drop(connection)
    client.handle(selector.take(), 0)

    assert isinstance(seen[0], BrokerUnreachable)


@pytest.mark.parametrize("frame", [b"\0\0\x99\x99", b"\0"])
def test_an_answer_to_nothing_ends_the_connection(
    client: NetworkClient, selector: ScriptedSelector, frame: bytes
) -> None:
    connection = connected(client, selector)
    done = Done()
    client.send(1, ListGroupsRequest(), 0, done)

    selector.receive(connection, frame)
    client.handle(selector.take(), 0)

    assert connection.is_closed
    assert isinstance(done.error, BrokerUnreachable)


def test_an_answer_that_cannot_be_read_ends_the_connection(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done, other = Done(), Done()
    client.send(1, ListGroupsRequest(), 0, done)
    client.send(1, ListGroupsRequest(), 0, other)

    correlation_id = connection.requests[0].correlation_id
    selector.receive(connection, correlation_id.to_bytes(4, "big") + b"\0\xff\xff")
    client.handle(selector.take(), 0)

    assert isinstance(done.error, DecodeError)
    assert isinstance(other.error, BrokerUnreachable)
    assert connection.is_closed


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


def test_a_standing_order_is_answered_each_time(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    order_id = client.repeat(1, HeartbeatRequest(group_id="g"), 100, 50, 1_000, done)
    sent_to, order = selector.orders[order_id]
    assert sent_to == connection.connection_id
    assert (order.first_ms, order.every_ms, order.until_ms) == (100, 50, 1_000)
    assert order.correlation_id >= 1 << 30

    for times in range(2):
        correlation_id = selector.fire(order_id, 100 + 50 * times, times)
        answer = encode_response(HeartbeatResponse(error_code=times), 4, correlation_id)
        selector.receive(connection, answer[4:])
    client.handle(selector.take(), 150)

    codes = [each.error_code for each in done.outcomes if isinstance(each, HeartbeatResponse)]
    assert codes == [0, 1]


def test_a_standing_order_ends_with_its_connection_and_one_error(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    order_id = client.repeat(1, HeartbeatRequest(), 100, 50, 1_000, done)
    selector.fire(order_id, 100)
    selector.fire(order_id, 150, 1)
    selector.drop(connection)
    client.handle(selector.take(), 160)

    assert isinstance(done.error, BrokerUnreachable)
    with pytest.raises(BrokerUnreachable, match="not connected"):
        client.repeat(1, HeartbeatRequest(), 100, 50, 1_000, done)


def test_the_answer_to_a_cancelled_order_is_dropped(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    order_id = client.repeat(1, HeartbeatRequest(), 100, 50, 1_000, done)
    before = selector.fire(order_id, 100)
    client.handle(selector.take(), 100)
    late = selector.fire(order_id, 150, 1)
    client.cancel(order_id)
    client.cancel(order_id)
    assert not selector.orders
    for correlation_id in (before, late):
        answer = encode_response(HeartbeatResponse(), 4, correlation_id)
        selector.receive(connection, answer[4:])
    client.handle(selector.take(), 160)

    assert not done.outcomes
    assert not connection.is_closed
    assert client.in_flight(1) == 0


def test_standing_orders_leave_room_for_requests_and_keep_the_connection(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    order_id = client.repeat(1, HeartbeatRequest(), 0, 50, 10**9, Done())
    for times in range(3):
        selector.fire(order_id, 0, times)
    client.handle(selector.take(), 0)

    assert client.is_ready(1, 0)
    client.poll(29_999)
    assert not connection.is_closed
    client.poll(30_000)
    assert connection.is_closed, "its heartbeats were not answered"


def test_closing_ends_everything_and_nothing_can_begin(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    again = Done()
    sent, waiting = Done(), Done()

    def send_again(outcome: Message | MillstreamError, now_ms: int) -> None:
        sent(outcome, now_ms)
        client.send(1, ListGroupsRequest(), now_ms, again)

    client.send(1, ListGroupsRequest(), 0, send_again)
    client.send(1, ListGroupsRequest(), 0, Done())
    client.send(1, ListGroupsRequest(), 0, waiting)

    client.close(1)

    assert connection.is_closed
    assert isinstance(sent.error, ClientClosed)
    assert isinstance(waiting.error, ClientClosed)
    assert isinstance(again.error, BrokerUnreachable)


def test_unknown_brokers_have_no_facts(client: NetworkClient) -> None:
    assert not client.is_ready(5, 0)
    assert not client.is_connected(5)
    assert client.in_flight(5) == 0
    assert client.connection_delay_ms(5, 0) == 0
    assert client.version_of(5, ApiKey.METADATA) is None
    assert client.features_of(5) == ()
    assert client.last_failure(5) == ""
    client.throttle(5, 100, 0)
    client.forget(5)


def test_every_state_can_end_in_disconnection() -> None:
    assert TRANSITIONS.keys() == set(LinkState)
    others = set(LinkState) - {LinkState.DISCONNECTED}
    assert all(LinkState.DISCONNECTED in TRANSITIONS[each] for each in others)
