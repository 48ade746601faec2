"""One connection: cutting frames, answering in order, muting, closing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DecodeError
from millstream.network import CLOSE, NO_RESPONSE, PENDING, Outcome, Request, Response
from tests.unit.network.fakes import (
    METADATA_V1,
    METADATA_V9,
    Parking,
    World,
    answer,
    answered_ids,
    frame,
    receive,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def echo(request: Request) -> Response | Outcome:
    """Answer with the body."""
    return answer(request, bytes(request.buffer[request.body : request.end]))


def test_all_frames_of_one_read_are_answered_with_one_write() -> None:
    channel, transport = World(echo).connect()

    receive(channel, frame(1, b"a") + frame(2, b"bb") + frame(3, b"ccc"))

    assert len(transport.writes) == 1
    assert answered_ids(transport.written) == [1, 2, 3]


def test_a_request_knows_its_header_and_its_connection() -> None:
    seen: list[tuple[object, ...]] = []

    def handle(request: Request) -> Response | Outcome:
        seen.append((request.api_key, request.api_version, request.correlation_id))
        seen.append((request.client_id, bytes(request.buffer[request.body : request.end])))
        assert request.size == len(request.frame)
        assert request.connection is channel
        return NO_RESPONSE

    channel, transport = World(handle).connect()
    receive(channel, frame(7, b"body", client_id="füllhorn".encode()))
    receive(channel, frame(8, b"body", api=METADATA_V9, client_id=None))
    receive(channel, frame(9, b"", client_id=b""))

    assert seen == [
        (*METADATA_V1, 7),
        ("füllhorn", b"body"),
        (*METADATA_V9, 8),
        (None, b"body"),
        (*METADATA_V1, 9),
        ("", b""),
    ]
    assert transport.writes == []


def test_tagged_fields_of_the_header_are_skipped() -> None:
    seen = []

    def handle(request: Request) -> Response | Outcome:
        seen.append(bytes(request.buffer[request.body : request.end]))
        return NO_RESPONSE

    channel, _ = World(handle).connect()
    plain = frame(1, b"", api=METADATA_V9)
    content = plain[4:-1] + b"\x02\x00\x03abc\x05\x00" + b"body"
    receive(channel, len(content).to_bytes(4, "big") + content)

    assert seen == [b"body"]


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=12), st.data())
def test_frames_survive_any_division_into_reads(bodies: list[bytes], data: st.DataObject) -> None:
    seen = []

    def handle(request: Request) -> Response | Outcome:
        seen.append(bytes(request.buffer[request.body : request.end]))
        return answer(request)

    channel, transport = World(handle).connect()
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        receive(channel, stream[:count])
        stream = stream[count:]

    assert seen == bodies
    assert answered_ids(transport.written) == list(range(len(bodies)))


@pytest.mark.parametrize("size", [40_000, 300_000, 2_000_000])
@pytest.mark.parametrize("piece", [1_000, 65_536, 10_000_000])
def test_large_frames_arrive_whole(size: int, piece: int) -> None:
    world = World(echo)
    channel, transport = world.connect()
    bodies = [bytes([number]) * size for number in range(3)]
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))

    for start in range(0, len(stream), piece):
        receive(channel, stream[start : start + piece])

    assert transport.written == b"".join(
        (4 + size).to_bytes(4, "big") + number.to_bytes(4, "big") + body
        for number, body in enumerate(bodies)
    )
    channel.connection_lost(None)
    assert world.processor.pool.loaned_bytes == 0
    assert world.processor.requests.bytes_in_memory == 0


def test_an_idle_connection_holds_no_buffer() -> None:
    world = World(echo)
    channel, _ = world.connect()

    receive(channel, frame(1, bytes(100_000)) + frame(2))
    receive(channel, frame(3))

    assert world.processor.pool.loaned_bytes == 0


def test_a_frame_that_is_only_announced_costs_little_memory() -> None:
    world = World(echo)
    channel, _ = world.connect()

    receive(channel, (100_000_000).to_bytes(4, "big") + bytes(20))

    assert world.processor.pool.loaned_bytes <= 16 * 1024


def test_responses_keep_the_order_of_the_requests() -> None:
    parking = Parking()
    world = World(parking)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2) + frame(3))

    parking.complete(3)
    parking.complete(2)
    world.loop.run()
    assert transport.writes == []
    parking.complete(1)
    world.loop.run()

    assert answered_ids(transport.written) == [1, 2, 3]
    assert len(transport.writes) == 1


def test_an_immediate_answer_waits_for_the_pending_one_before_it() -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        if request.correlation_id == 1:
            parked.append(request)
            return PENDING
        return answer(request)

    world = World(handle)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2))
    assert transport.writes == []

    parked[0].complete(answer(parked[0]))
    world.loop.run()

    assert answered_ids(transport.written) == [1, 2]


def test_a_request_may_be_completed_before_its_handler_returns() -> None:
    def handle(request: Request) -> Response | Outcome:
        request.complete(answer(request))
        return PENDING

    channel, transport = World(handle).connect()

    receive(channel, frame(1) + frame(2))

    assert answered_ids(transport.written) == [1, 2]


def test_a_request_is_completed_once() -> None:
    parking = Parking()
    channel, _ = World(parking).connect()
    receive(channel, frame(1))
    parking.complete(1)

    with pytest.raises(ValueError, match="answered before"):
        parking.complete(1)
    with pytest.raises(ValueError, match="PENDING"):
        parking.requests[0].complete(PENDING)


def test_completing_after_the_connection_is_gone_does_nothing() -> None:
    parking = Parking()
    world = World(parking)
    channel, transport = world.connect()
    receive(channel, frame(1))

    channel.connection_lost(ConnectionResetError())
    parking.complete(1)
    world.loop.run()

    assert transport.writes == []
    assert world.closed == [channel]
    assert not channel.is_open


def test_the_bytes_of_a_pending_request_cannot_be_read_by_mistake() -> None:
    parking = Parking()
    channel, _ = World(parking).connect()

    receive(channel, frame(1, b"secret", client_id=b"me"))
    receive(channel, frame(2, b"other", client_id=b"you"))

    assert [request.client_id for request in parking.requests] == ["me", "you"]
    assert b"secret" not in bytes(parking.requests[0].buffer)


@pytest.mark.parametrize("size", [10, 100_000])
def test_retained_bytes_stay_valid(size: int) -> None:
    kept: list[memoryview] = []

    def handle(request: Request) -> Response | Outcome:
        request.retain()
        kept.append(request.buffer[request.body : request.end])
        return PENDING

    channel, _ = World(handle).connect()
    for number in range(4):
        other = frame(number + 10, b"x" * size)
        receive(channel, frame(number, bytes([65 + number]) * size) + other[:2])
        receive(channel, other[2:])

    assert [bytes(view[:1]) * size == bytes(view) for view in kept] == [True] * 8
    assert [chr(view[0]) for view in kept] == ["A", "x", "B", "x", "C", "x", "D", "x"]


def test_too_many_unanswered_requests_mute_their_connection() -> None:
    parking = Parking()
    world = World(parking, in_flight_requests_max=2)
    channel, transport = world.connect()

    receive(channel, b"".join(frame(number) for number in range(5)))
    assert [request.correlation_id for request in parking.requests] == [0, 1]
    assert not transport.is_reading

    for number in range(5):
        parking.complete(number)
        world.loop.run()

    assert answered_ids(transport.written) == [0, 1, 2, 3, 4]
    assert transport.is_reading
    assert world.processor.mutes > 0


def test_a_muted_connection_with_one_request_at_a_time_still_gets_through() -> None:
    def handle(request: Request) -> Response | Outcome:
        request.complete(answer(request))
        return PENDING

    world = World(handle, in_flight_requests_max=1)
    channel, transport = world.connect()

    receive(channel, b"".join(frame(number, bytes(50_000)) for number in range(5)))
    world.loop.run()

    assert answered_ids(transport.written) == [0, 1, 2, 3, 4]
    assert transport.is_reading


def test_retained_requests_are_limited_for_all_connections_together() -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        request.retain()
        parked.append(request)
        return PENDING

    world = World(handle, queued_max_requests=2)
    first, first_transport = world.connect()
    second, second_transport = world.connect()
    receive(first, frame(1))
    assert first_transport.is_reading

    receive(second, frame(2) + frame(3))
    assert not second_transport.is_reading
    assert len(parked) == 2

    parked[0].complete(answer(parked[0]))
    world.loop.run()

    assert len(parked) == 3
    assert world.processor.requests.requests_retained == 2


def test_large_frames_wait_until_there_is_memory() -> None:
    world = World(echo, queued_max_request_bytes=100_000)
    first, first_transport = world.connect()
    second, second_transport = world.connect()
    large = frame(1, bytes(200_000))
    receive(first, large[:50_000])
    receive(second, large[:50_000])

    assert first_transport.is_reading
    assert not second_transport.is_reading
    receive(first, large[50_000:])
    world.loop.run()

    assert answered_ids(first_transport.written) == [1]
    assert second_transport.is_reading
    receive(second, large[50_000:])
    assert answered_ids(second_transport.written) == [1]
    assert world.processor.requests.bytes_in_memory == 0


def test_a_connection_that_goes_gives_its_memory_to_those_who_wait() -> None:
    world = World(echo, queued_max_request_bytes=1)
    first, _ = world.connect()
    second, second_transport = world.connect()
    large = frame(1, bytes(200_000))
    receive(first, large[:50_000])
    receive(second, large[:50_000])

    first.connection_lost(None)
    world.loop.run()
    receive(second, large[50_000:])

    assert answered_ids(second_transport.written) == [1]


def test_a_throttled_connection_is_read_again_at_the_given_time() -> None:
    def handle(request: Request) -> Response | Outcome:
        if request.correlation_id == 1:
            request.connection.mute_until(world.clock.monotonic_ms() + 500)
        return answer(request)

    world = World(handle)
    channel, transport = world.connect()
    receive(channel, frame(1) + frame(2))

    assert answered_ids(transport.written) == [1]
    world.advance(499)
    assert not transport.is_reading
    world.advance(1)

    assert transport.is_reading
    assert answered_ids(transport.written) == [1, 2]


def test_a_longer_throttle_wins_and_does_not_count_as_idle() -> None:
    world = World(echo, connections_max_idle_ms=100)
    channel, transport = world.connect()
    channel.mute_until(300)
    channel.mute_until(150)

    world.advance(299)
    assert not transport.is_reading
    assert channel.is_open
    world.advance(1)

    assert transport.is_reading


def test_an_idle_connection_is_closed() -> None:
    world = World(echo, connections_max_idle_ms=1000)
    idle, idle_transport = world.connect()
    busy, busy_transport = world.connect()
    world.advance(600)
    receive(busy, frame(1))
    world.advance(400)

    assert idle_transport.is_closed
    assert not busy_transport.is_closed
    assert world.closed == [idle]
    assert world.processor.connections_expired == 1
    world.advance(600)
    assert busy_transport.is_closed


def test_idle_expiry_may_be_switched_off() -> None:
    world = World(echo, connections_max_idle_ms=-1)
    _, transport = world.connect()

    world.advance(10**10)

    assert not transport.is_closed
    assert world.loop.timers == []


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    parking = Parking()
    world = World(parking, connections_max_idle_ms=1000)
    channel, transport = world.connect()
    receive(channel, frame(1))

    world.advance(5000)

    assert channel.is_open
    parking.complete(1)
    world.loop.run()
    assert answered_ids(transport.written) == [1]


def test_many_connections_share_one_timer() -> None:
    world = World(echo)

    for _ in range(100):
        channel, _ = world.connect()
        receive(channel, frame(1))

    assert len(world.loop.timers) == 1


def test_deadlines_of_closed_connections_are_forgotten() -> None:
    world = World(echo)

    for _ in range(1000):
        channel, _ = world.connect()
        channel.connection_lost(None)

    assert len(world.processor._deadlines) < 200


def test_a_peer_that_takes_nothing_is_muted_and_finally_closed() -> None:
    world = World(echo, write_stall_max_ms=1000)
    channel, transport = world.connect()
    channel.pause_writing()
    receive(channel, frame(1))
    assert not transport.is_reading

    world.advance(999)
    assert channel.is_open
    world.advance(1)

    assert transport.was_aborted
    assert world.processor.connections_stalled == 1


def test_a_slow_peer_that_makes_progress_is_kept() -> None:
    world = World(echo, write_stall_max_ms=1000)
    channel, transport = world.connect()
    for _ in range(5):
        channel.pause_writing()
        receive(channel, frame(1))
        world.advance(900)
        channel.resume_writing()
        world.loop.run()
        assert transport.is_reading

    assert answered_ids(transport.written) == [1] * 5


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


def test_responses_in_parts_keep_their_place() -> None:
    def handle(request: Request) -> Response | Outcome:
        whole = answer(request, b"abcdef")
        return [whole[:6], memoryview(whole)[6:9], bytearray(whole[9:])]

    channel, transport = World(handle).connect()

    receive(channel, frame(1) + frame(2))

    assert answered_ids(transport.written) == [1, 2]
    assert transport.written.count(b"abcdef") == 2
