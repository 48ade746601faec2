"""Requests to brokers, without a socket and with manual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    BrokerUnreachable,
    ClientClosed,
    DecodeError,
    MillstreamError,
    UnsupportedVersion,
)
from millstream.network.client.network_client import (
    NetworkClient,
    VersionedRequest,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.protocol.notation import VersionRange
from tests.unit.network.network_clients import Done, connected, make_client
from tests.unit.network.scripted_selector import ScriptedSelector

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer


@pytest.fixture
def selector() -> ScriptedSelector:
    return ScriptedSelector()


@pytest.fixture
def client(selector: ScriptedSelector) -> NetworkClient:
    return make_client(selector)


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

    closed = ClientClosed("closed by the test")
    client.close(1, closed)

    assert connection.is_closed
    assert sent.error is closed
    assert waiting.error is closed
    assert isinstance(again.error, BrokerUnreachable)
