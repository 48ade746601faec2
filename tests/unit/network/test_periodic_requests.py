"""Requests that the selector sends by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    BrokerUnreachable,
)
from millstream.protocol.frame import encode_response
from millstream.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
)
from tests.unit.network.network_clients import Done, connected, make_client
from tests.unit.network.scripted_selector import ScriptedSelector

if TYPE_CHECKING:
    from millstream.network.client.network_client import (
        NetworkClient,
    )


@pytest.fixture
def selector() -> ScriptedSelector:
    return ScriptedSelector()


@pytest.fixture
def client(selector: ScriptedSelector) -> NetworkClient:
    return make_client(selector)


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


def test_a_periodic_request_is_answered_each_time(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    periodic_id = client.repeat(1, HeartbeatRequest(group_id="g"), 100, 50, 1_000, done)
    sent_to, periodic = selector.periodic[periodic_id]
    assert sent_to == connection.connection_id
    assert (periodic.first_ms, periodic.every_ms, periodic.until_ms) == (100, 50, 1_000)
    assert periodic.correlation_id >= 1 << 30

    for times in range(2):
        correlation_id = selector.fire(periodic_id, 100 + 50 * times, times)
        answer = encode_response(HeartbeatResponse(error_code=times), 4, correlation_id)
        selector.receive(connection, answer[4:])
    client.handle(selector.take(), 150)

    codes = [each.error_code for each in done.outcomes if isinstance(each, HeartbeatResponse)]
    assert codes == [0, 1]


def test_a_periodic_request_ends_with_its_connection_and_one_error(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    done = Done()
    periodic_id = client.repeat(1, HeartbeatRequest(), 100, 50, 1_000, done)
    selector.fire(periodic_id, 100)
    selector.fire(periodic_id, 150, 1)
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
    periodic_id = client.repeat(1, HeartbeatRequest(), 100, 50, 1_000, done)
    before = selector.fire(periodic_id, 100)
    client.handle(selector.take(), 100)
    late = selector.fire(periodic_id, 150, 1)
    client.cancel(periodic_id)
    client.cancel(periodic_id)
    assert not selector.periodic
    for correlation_id in (before, late):
        answer = encode_response(HeartbeatResponse(), 4, correlation_id)
        selector.receive(connection, answer[4:])
    client.handle(selector.take(), 160)

    assert not done.outcomes
    assert not connection.is_closed
    assert client.in_flight(1) == 0


def test_periodic_requests_leave_room_for_requests_and_keep_the_connection(
    client: NetworkClient, selector: ScriptedSelector
) -> None:
    connection = connected(client, selector)
    periodic_id = client.repeat(1, HeartbeatRequest(), 0, 50, 10**9, Done())
    for times in range(3):
        selector.fire(periodic_id, 0, times)
    client.handle(selector.take(), 0)

    assert client.is_ready(1, 0)
    client.poll(29_999)
    assert not connection.is_closed
    client.poll(30_000)
    assert connection.is_closed, "its heartbeats were not answered"
