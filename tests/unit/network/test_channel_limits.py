"""One connection among others: muting, memory, throttling, idle and stuck peers."""

from __future__ import annotations

from millstream.network.server import PENDING, Outcome, Request, Response
from tests.unit.network.fakes import (
    Parking,
    World,
    answer,
    answered_ids,
    echo,
    frame,
    receive,
)


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
