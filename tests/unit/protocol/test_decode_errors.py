"""Bad bytes end in one error that names message, version, field and position."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from millstream.errors import DecodeError
from millstream.protocol.messages import (
    ApiVersionsResponse,
    ConsumerGroupMemberMetadataValue,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    LeaderAndIsrRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
    ResponseHeader,
    SaslAuthenticateRequest,
    TopicRecord,
)
from millstream.protocol.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from millstream.protocol.message import Message

# Message, version, bytes, field, position, problem.
CASES: list[tuple[type[Message], int, str, str, int, str]] = [
    (MetadataRequest, 1, "", "topics", 0, "4 bytes needed, 0 left"),
    (MetadataRequest, 1, "00000001", "topics", 0, "1 elements cannot fit in the 0 bytes left"),
    (MetadataRequest, 1, "00000001" "0003" "61", "topics[0].name", 6, "3 bytes needed, 1 left"),
    (MetadataRequest, 1, "00000001" "0001" "ff", "topics[0].name", 7, "not UTF-8"),
    (MetadataRequest, 1, "00000001" "fffe", "topics[0].name", 4, "length is -2"),
    (MetadataRequest, 1, "00000001" "ffff", "topics[0].name", 4, "null is not allowed"),
    (MetadataRequest, 0, "ffffffff", "topics", 0, "null is not allowed"),
    (MetadataRequest, 1, "80000000", "topics", 0, "length is -2147483648"),
    (MetadataRequest, 1, "7fffffff", "topics", 0, "2147483647 elements cannot fit"),
    (MetadataRequest, 1, "00000000" "00", "", 4, "1 bytes follow the last field"),
    (MetadataRequest, 9, "ffffffff0f", "topics", 0, "elements cannot fit"),
    (MetadataRequest, 9, "ffffffffff", "topics", 0, "does not end within 5 bytes"),
    (MetadataRequest, 9, "ffffffff1f", "topics", 0, "more than 32 bits"),
    (MetadataRequest, 9, "80", "topics", 0, "truncated inside a varint"),
    (MetadataRequest, 9, "02" "00" "00", "topics[0].name", 1, "null is not allowed"),
    (OffsetCommitRequest, 8, "81800461", "group_id", 0, "string of 65536 bytes"),
    (SaslAuthenticateRequest, 0, "ffffffff", "auth_bytes", 0, "null is not allowed"),
    (SaslAuthenticateRequest, 0, "0000ffff00", "auth_bytes", 4, "65535 bytes needed, 1 left"),
    (SaslAuthenticateRequest, 2, "00", "auth_bytes", 0, "null is not allowed"),
    (ProduceRequest, 3, "ffff" "0000" "00000000" "fffffffe", "topic_data", 8, "length is -2"),
    (ProduceRequest, 9, "00" "0000" "00000000" "02" "01" "02" "00000000" "09" "00" "00000000",
     "topic_data[0].partition_data[0].records", 15, "8 bytes needed, 5 left"),
    (DescribeTopicPartitionsRequest, 0, "01" "00000000" "00", "cursor", 5, "presence is 0"),
    (TopicRecord, 0, "01" + "00" * 15, "topic_id", 1, "16 bytes needed, 15 left"),
    (ResponseHeader, 1, "00000000" "80", "tag count", 4, "truncated inside a varint"),
    (ResponseHeader, 1, "00000000" "01", "tag", 5, "truncated inside a varint"),
    (ResponseHeader, 1, "00000000" "0101", "tag", 6, "truncated inside a varint"),
    (ResponseHeader, 1, "00000000" "010105aa", "tag 1", 7, "5 bytes needed, 1 left"),
    (ResponseHeader, 1, "00000000" "0201000100", "tag", 7, "tag 1 comes after tag 1"),
    (ResponseHeader, 1, "00000000" "0202000100", "tag", 7, "tag 1 comes after tag 2"),
    (ApiVersionsResponse, 3, "0000" "01" "00000000" "01" "0109" "0000000000000000" "00",
     "finalized_features_epoch", 18, "tag 1 says 9 bytes but has 8"),
    (ApiVersionsResponse, 3, "0000" "01" "00000000" "01" "0107" "0000000000000000",
     "finalized_features_epoch", 18, "tag 1 says 7 bytes but has 8"),
    (ApiVersionsResponse, 3, "0000" "01" "00000000" "01" "0109" "0000",
     "finalized_features_epoch", 10, "9 bytes needed, 2 left"),
    (ApiVersionsResponse, 3, "0000" "01" "00000000" "02" "030100" "030100", "tag", 11,
     "tag 3 comes after tag 3"),
    (FetchRequest, 3, "00", "", -1, "there is no version 3, known are 4-18"),
    (FetchRequest, 19, "00", "", -1, "there is no version 19, known are 4-18"),
    (LeaderAndIsrRequest, 0, "00", "", -1, "there is no version 0, known are none"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "version", "raw", "field", "position", "problem"), CASES)
def test_the_error_names_the_place(
    cls: type[Message], version: int, raw: str, field: str, position: int, problem: str
) -> None:
    encoded = bytes.fromhex(raw)
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        with pytest.raises(DecodeError) as caught:
            cls.decode(buffer, version)

        error = caught.value
        assert (error.message, error.version) == (cls.__name__, version)
        assert (error.field, error.position) == (field, position)
        assert problem in error.problem


def test_positions_count_from_the_start_of_the_buffer() -> None:
    with pytest.raises(DecodeError) as caught:
        MetadataRequest.decode(b"????" + bytes.fromhex("00000001fffe"), 1, 4)

    assert caught.value.position == 8


def test_decoding_from_a_position_leaves_the_rest_alone_but_not_a_shortage() -> None:
    decoded, end = ResponseHeader.decode_from(b"??\0\0\0\7rest", 0, 2)

    assert (decoded.correlation_id, end) == (7, 6)
    with pytest.raises(DecodeError, match="OffsetCommitRequest v8 field group_id"):
        OffsetCommitRequest.decode_from(b"\x05ab", 8)
    with pytest.raises(DecodeError, match="SaslAuthenticateRequest v0 field auth_bytes at byte 4"):
        SaslAuthenticateRequest.decode_from(memoryview(b"\0\0\0\5ab"), 0)


def test_presence_of_a_struct_in_a_tag_is_0_or_1() -> None:
    absent = ConsumerGroupMemberMetadataValue().encode(0)
    assert absent.endswith(b"\0")
    null_in_tag = absent[:-1] + b"\x01\x00\x01\x00"
    odd_in_tag = absent[:-1] + b"\x01\x00\x01\x02"

    decoded = ConsumerGroupMemberMetadataValue.decode(null_in_tag, 0)

    assert decoded.classic_member_metadata is None
    with pytest.raises(DecodeError, match=r"classic_member_metadata .* presence is 2, not 0 or 1"):
        ConsumerGroupMemberMetadataValue.decode(odd_in_tag, 0)


def test_a_clumsy_varint_means_what_it_says() -> None:
    decoded = MetadataRequest.decode(bytes.fromhex("800001000000"), 9)

    assert decoded.topics is None
    nameless = "82808000" + "00" * 16 + "8000" + "00"
    decoded = MetadataRequest.decode(bytes.fromhex(nameless + "010000"), 12)
    assert decoded.topics == [MetadataRequestTopic(name=None)]
    with pytest.raises(DecodeError, match="auth_bytes at byte 0: null is not allowed"):
        SaslAuthenticateRequest.decode(b"\x80\x00", 2)
    with pytest.raises(DecodeError, match="group_id at byte 0: null is not allowed"):
        OffsetCommitRequest.decode(b"\x80\x00", 8)


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (MetadataRequest, 1, "7ffffffe"),
        (MetadataRequest, 9, "feffffff07"),
        (SaslAuthenticateRequest, 0, "7ffffffe"),
        (ProduceRequest, 9, "00" "0000" "00000000" "feffffff07"),
        (ResponseHeader, 1, "00000000" "feffffff07"),
    ],
)  # fmt: skip
def test_memory_follows_the_bytes_that_came_not_what_they_claim(
    cls: type[Message], version: int, raw: str
) -> None:
    encoded = bytes.fromhex(raw) + bytes(64)
    with pytest.raises(DecodeError):
        cls.decode(encoded, version)  # compiles the decoder

    tracemalloc.start()
    with pytest.raises(DecodeError):
        cls.decode(encoded, version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000
