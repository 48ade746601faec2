"""Frames: cutting a stream, headers, whole requests and responses."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from millstream.errors import DecodeError, FrameTooLarge
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import (
    SMALL_PIECE_BYTES,
    FrameDecoder,
    cut_frames,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_parts,
    encode_response,
    encode_response_parts,
)
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_many_frames_in_one_read() -> None:
    decoder = FrameDecoder()

    assert decoder.feed(frame(b"one") + frame(b"two") + frame(b"three")[:5]) == [b"one", b"two"]
    assert decoder.held_bytes == 1
    assert decoder.feed(b"hree") == [b"three"]
    assert decoder.held_bytes == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_fed(kind: type) -> None:
    frames = FrameDecoder().feed(kind(frame(b"one") + frame(b"two")))

    assert frames == [b"one", b"two"]
    assert all(type(each) is bytes for each in frames)


def test_byte_by_byte() -> None:
    decoder = FrameDecoder()

    cut = [got for byte in frame(b"one") + frame(b"two") for got in decoder.feed(bytes([byte]))]

    assert cut == [b"one", b"two"]


def test_a_large_frame_over_many_reads_is_kept_in_few_pieces() -> None:
    decoder = FrameDecoder()
    body = bytes(range(256)) * 400
    stream = frame(body) + frame(b"next")

    cut = []
    cut += decoder.feed(stream[:10])
    cut += decoder.feed(stream[10:20])
    cut += decoder.feed(stream[20 : 20 + SMALL_PIECE_BYTES])
    cut += decoder.feed(stream[20 + SMALL_PIECE_BYTES :])

    assert cut == [body, b"next"]


@pytest.mark.parametrize("size", [-1, -(1 << 31), 11])
def test_a_size_that_is_negative_or_above_the_limit_ends_the_connection(size: int) -> None:
    with pytest.raises(FrameTooLarge, match=str(size)):
        FrameDecoder(frame_bytes_max=10).feed(struct.pack(">i", size))


def test_an_empty_frame_is_legal_only_for_raw_tokens() -> None:
    with pytest.raises(DecodeError, match="0 bytes"):
        FrameDecoder().feed(frame(b""))

    assert FrameDecoder(allow_empty=True).feed(frame(b"") + frame(b"x")) == [b"", b"x"]


def test_cutting_tells_how_much_is_wanted() -> None:
    buffer = bytearray(b"??" + frame(b"abc") + frame(b"defg")[:6] + b"?")

    cut = cut_frames(buffer, 2, len(buffer) - 1)

    assert [bytes(buffer[first:last]) for first, last in cut.bounds] == [b"abc"]
    assert cut.rest == 9
    assert cut.wanted == 8
    assert cut_frames(buffer, 9, 11).wanted == 4


def test_a_request_comes_back_with_its_header() -> None:
    request = MetadataRequest(topics=None)

    for version, header_version in [(1, 1), (9, 2)]:
        (body,) = FrameDecoder().feed(encode_request(request, version, 42, "me"))
        header, decoded = decode_request(body)

        assert ApiKey.METADATA.request_header_version(version) == header_version
        assert header.correlation_id == 42
        assert header.client_id == "me"
        assert decoded == request


def test_records_are_not_copied_into_the_parts_of_a_request() -> None:
    batch = memoryview(bytearray(1000))
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])

    parts = encode_request_parts(request, 11, 1, "me")

    assert any(part is batch for part in parts)
    assert b"".join(parts) == encode_request(request, 11, 1, "me")
    assert struct.unpack_from(">i", parts[0])[0] == sum(map(len, parts)) - 4


class FileSlice:
    """Stands for records that are sent by the kernel, from a file."""

    def __len__(self) -> int:
        return 300


def test_records_may_be_anything_with_a_length() -> None:
    from_file = FileSlice()
    data = PartitionData(records=from_file)  # type: ignore[arg-type]  # what a sender may do
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])

    parts: list[Any] = list(encode_response_parts(response, 16, 1))

    assert parts[1] is from_file
    assert struct.unpack_from(">i", parts[0])[0] == sum(map(len, parts)) - 4


@pytest.mark.parametrize("version", [4, 16])
def test_a_response_comes_back_with_its_correlation_id(version: int) -> None:
    response = FetchResponse(throttle_time_ms=7)

    body = encode_response(response, version, 42)[4:]

    assert decode_response(body, ApiKey.FETCH, version) == (42, response)
    assert decode_response_header(body, ApiKey.FETCH, version)[0] == 42


def test_a_client_reads_the_refusal_of_its_api_versions_request() -> None:
    refusal = ApiVersionsResponse(error_code=35)

    body = encode_response(refusal, 0, 42)[4:]

    assert decode_response(body, ApiKey.API_VERSIONS, 4) == (42, refusal)


def test_the_header_of_an_api_versions_request_from_the_future_can_be_read() -> None:
    body = encode_request(ApiVersionsRequest(), 4, 42, "me")[4:]
    from_the_future = body[:2] + b"\x00\x63" + body[4:]

    header, _ = decode_request_header(from_the_future)

    assert header.request_api_version == 99
    assert header.correlation_id == 42


@pytest.mark.parametrize("key", [4, 999, -1])
def test_a_request_for_an_api_that_does_not_exist_is_refused(key: int) -> None:
    with pytest.raises(DecodeError, match=f"no API with key {key}"):
        decode_request(struct.pack(">hhi", key, 0, 1) + b"\xff\xff")


def test_a_frame_too_short_for_a_header_is_refused() -> None:
    with pytest.raises(DecodeError, match="RequestHeader"):
        decode_request(b"\0\0\0")
    with pytest.raises(DecodeError, match="RequestHeader v1 field correlation_id"):
        decode_request(b"\0\0\0\3\0")


def test_tagged_fields_in_the_header_of_a_response_are_passed_over() -> None:
    header = b"\0\0\0\x2a" + b"\x01\x05\x02ab"  # One field, with tag 5 and two bytes.

    assert decode_response_header(header + b"body", ApiKey.FETCH, 16) == (42, len(header))
