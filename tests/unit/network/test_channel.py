"""One connection: frames cut from any reads, handed over once, answered in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.network.server import NO_RESPONSE, PENDING, Outcome, Request, Response
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request, encode_response
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.unit.network.fakes import (
    METADATA_V1,
    METADATA_V9,
    Parking,
    World,
    answer,
    answered_ids,
    echo,
    frame,
    receive,
)


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

    world = World(handle)
    channel, transport = world.connect()
    stream = b"".join(frame(number, body) for number, body in enumerate(bodies))
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        assert not receive(channel, stream[:count])
        stream = stream[count:]
        world.loop.run()

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
    assert world.processor.pool.taken_bytes == 0
    assert world.processor.requests.bytes_in_memory == 0


def test_an_idle_connection_holds_no_buffer() -> None:
    world = World(echo)
    channel, _ = world.connect()

    receive(channel, frame(1, bytes(100_000)) + frame(2))
    receive(channel, frame(3))

    assert world.processor.pool.taken_bytes == 0


def test_who_sends_several_frames_at_a_time_goes_on_being_read_so() -> None:
    world = World(echo)
    channel, _ = world.connect()
    sent = frame(1, bytes(65_536))
    stream = sent * 8
    whole = len(channel.get_buffer(-1))

    receive(channel, stream[: whole - 1])
    after_a_cut = len(channel.get_buffer(-1))
    receive(channel, stream[whole - 1 :][: after_a_cut - 1])
    after_another = len(channel.get_buffer(-1))

    assert min(after_a_cut, after_another) > 2 * len(sent)


def test_a_connection_is_read_into_the_shared_buffer_again_when_nothing_is_left() -> None:
    world = World(echo)
    channel, _ = world.connect()
    sent = frame(1, bytes(100_000))

    receive(channel, sent * 2 + sent[:-1])
    assert world.processor.pool.taken_bytes > 0
    receive(channel, sent[-1:])

    assert world.processor.pool.taken_bytes == 0
    assert channel.get_buffer(-1) is world.processor.shared_space


def test_a_frame_that_is_only_announced_costs_little_memory() -> None:
    world = World(echo)
    channel, _ = world.connect()

    receive(channel, (100_000_000).to_bytes(4, "big") + bytes(20))

    assert world.processor.pool.taken_bytes <= 16 * 1024


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


def test_responses_in_parts_keep_their_place() -> None:
    def handle(request: Request) -> Response | Outcome:
        whole = answer(request, b"abcdef")
        return [whole[:6], memoryview(whole)[6:9], bytearray(whole[9:])]

    channel, transport = World(handle).connect()

    receive(channel, frame(1) + frame(2))

    assert answered_ids(transport.written) == [1, 2]
    assert transport.written.count(b"abcdef") == 2


def test_a_real_request_is_decoded_from_its_body_and_really_answered() -> None:
    def handle(request: Request) -> Response | Outcome:
        asked = MetadataRequest.decode(
            request.frame, request.api_version, request.body - request.start
        )
        assert request.client_id == "someone"
        names = [topic.name for topic in asked.topics or ()]
        topics = [MetadataResponseTopic(name=name) for name in names]
        response = MetadataResponse(topics=topics)
        return encode_response(response, request.api_version, request.correlation_id)

    channel, transport = World(handle).connect()
    for version in (4, 12):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="weather")])
        receive(channel, encode_request(request, version, version, "someone"))

        frame_ = transport.writes[-1][4:]
        correlation_id, response = decode_response(frame_, ApiKey.METADATA, version)
        assert correlation_id == version
        assert isinstance(response, MetadataResponse)
        assert [topic.name for topic in response.topics] == ["weather"]
