"""One connection that goes wrong or ends: garbage, bugs, goodbyes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from millstream.errors import DecodeError
from millstream.network.server import CLOSE, PENDING, Outcome, Request, Response
from tests.unit.network.fakes import (
    METADATA_V9,
    Parking,
    World,
    answer,
    answered_ids,
    echo,
    frame,
    receive,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_close_sends_what_was_answered_before() -> None:
    def handle(request: Request) -> Response | Outcome:
        return CLOSE if request.correlation_id == 2 else answer(request)

    world = World(handle)
    channel, transport = world.connect()

    receive(channel, frame(1) + frame(2) + frame(3))
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed
    assert world.closed == [channel]


def test_close_waits_for_pending_requests_before_it() -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        if request.correlation_id == 2:
            return CLOSE
        parked.append(request)
        return PENDING

    world = World(handle)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2) + frame(3))
    assert not transport.is_closed

    parked[0].complete(answer(parked[0]))
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed
    assert len(parked) == 1


def test_a_failing_handler_closes_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Request) -> Response | Outcome:
        if request.correlation_id == 2:
            raise RuntimeError("a bug")
        return answer(request)

    world = World(handle)
    channel, transport = world.connect()
    other, other_transport = world.connect()
    receive(channel, frame(1) + frame(2) + frame(3))
    receive(other, frame(1))
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed
    assert answered_ids(other_transport.written) == [1]
    assert "a bug" in caplog.text


def test_a_body_that_does_not_decode_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(request: Request) -> Response | Outcome:
        raise DecodeError("no such field", message="MetadataRequest", version=1)

    world = World(handle)
    channel, transport = world.connect()
    receive(channel, frame(1))
    world.loop.run()

    assert transport.is_closed
    assert "MetadataRequest v1: no such field" in caplog.text
    assert "Traceback" not in caplog.text


def _http(_: bytes) -> bytes:
    return b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def _tls(_: bytes) -> bytes:
    return bytes.fromhex("1603010200010001fc0303") + bytes(40)


def _unknown_api(valid: bytes) -> bytes:
    return valid[:4] + b"\x03\xe7" + valid[6:]


def _unknown_version(valid: bytes) -> bytes:
    return valid[:6] + b"\x00\x63" + valid[8:]


def _negative_key(valid: bytes) -> bytes:
    return valid[:4] + b"\xff\xff" + valid[6:]


def _long_client_id(valid: bytes) -> bytes:
    return valid[:12] + b"\x7f\xff" + valid[14:]


def _negative_client_id(valid: bytes) -> bytes:
    return valid[:12] + b"\xff\xfe" + valid[14:]


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (_http, "an HTTP request"),
        (_tls, "a TLS handshake"),
        (lambda _: b"SSH-2.0-OpenSSH_9.9\r\n", "an SSH greeting"),
        (lambda _: b"\xff\xff\xff\xff", "a request of -1 bytes"),
        (lambda _: bytes(4), "a request of 0 bytes"),
        (lambda _: bytes(20), "a request of 0 bytes"),
        (lambda _: b"\0\0\0\x05abcde", "a request of 5 bytes"),
        (lambda _: b"\x7f\xff\xff\xff", "socket.request.max.bytes is 104857600"),
        (_unknown_api, "API key 999 version 1 is not served here"),
        (lambda _: bytes(range(256)), "API key 1029 version 1543 is not served here"),
        (_unknown_version, "API key 3 version 99 is not served here"),
        (_negative_key, "API key 65535"),
        (_long_client_id, "a client id of 32767 bytes"),
        (_negative_client_id, "a client id of -2 bytes"),
    ],
)
def test_garbage_closes_the_connection_and_says_why(
    garbage: Callable[[bytes], bytes], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(echo)
    channel, transport = world.connect()

    receive(channel, frame(1) + garbage(frame(2)))
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed
    assert said in caplog.text
    assert "10.1.2.3:40001 on SSL" in caplog.text
    assert world.processor.requests_rejected == 1


def test_a_broken_tagged_field_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World(echo)
    channel, transport = world.connect()
    content = frame(1, b"", api=METADATA_V9)[4:-1] + b"\x01\x00\x7fabc"

    receive(channel, len(content).to_bytes(4, "big") + content)
    world.loop.run()

    assert transport.is_closed
    assert "tagged field" in caplog.text


def test_a_complete_frame_above_the_limit_is_refused() -> None:
    world = World(echo, socket_request_max_bytes=100)
    channel, transport = world.connect()

    receive(channel, frame(1, bytes(50)) + frame(2, bytes(100)))
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed


def test_an_api_versions_request_from_the_future_reaches_its_handler() -> None:
    channel, transport = World(echo).connect()

    receive(channel, frame(5, b"whatever", api=(18, 77)))

    assert answered_ids(transport.written) == [5]


def test_many_bad_peers_write_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(echo)
    for _ in range(50):
        channel, _ = world.connect()
        receive(channel, b"GET / HTTP/1.1\r\n\r\n")
    world.advance(10_000)
    channel, _ = world.connect()
    receive(channel, b"POST / HTTP/1.1\r\n\r\n")

    assert len(caplog.records) == 2
    assert "49 more like it" in caplog.messages[1]


def test_a_handler_may_close_its_connection() -> None:
    def handle(request: Request) -> Response | Outcome:
        request.connection.close("not authenticated")
        return answer(request)

    world = World(handle)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2))
    world.loop.run()

    assert transport.was_aborted
    assert transport.writes == []
    assert world.closed == [channel]


def test_draining_answers_what_is_in_flight_and_closes() -> None:
    parking = Parking()
    world = World(parking)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2)[:5])

    channel.drain()
    world.loop.run()
    assert not transport.is_closed
    parking.complete(1)
    world.loop.run()

    assert answered_ids(transport.written) == [1]
    assert transport.is_closed
    assert not transport.was_aborted


def test_a_goodbye_waits_for_the_peers_own_and_ignores_what_still_comes() -> None:
    world = World(echo)
    channel, transport = world.connect()
    transport.has_half_close = True
    receive(channel, frame(1))

    channel.drain()
    assert transport.is_half_closed
    assert transport.is_reading
    receive(channel, frame(2))
    world.advance(999)
    assert not transport.is_closed
    world.advance(1)

    assert transport.was_aborted
    assert answered_ids(transport.written) == [1]
    assert world.closed == [channel]
