"""Formats 0 and 1, read only: offsets, timestamps, checksums, wrappers, and what is refused."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest

from millstream.errors import CorruptMessage, UnsupportedCompressionType
from millstream.records import Compression, LegacyBatch, TimestampType, compress
from tests.unit.records.test_decoding import fields

GZIP, SNAPPY, LZ4, ZSTD = list(Compression)[1:]
LOG_APPEND_TIME = 0x08


def message(
    magic: int,
    *,
    offset: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
    timestamp: int = 1000,
    attributes: int = 0,
) -> bytes:
    """A message by the format's own description, written anew for these tests."""
    body = struct.pack(">Bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, codec: Compression, inner: bytes, *, offset: int, attributes: int = 0
) -> bytes:
    return message(
        magic,
        offset=offset,
        value=bytes(compress(codec, inner)),
        timestamp=5000,
        attributes=codec | attributes,
    )


def with_broken_lz4_checksum(data: bytes) -> bytes:
    """As Kafka 0.8 wrote it: another checksum byte than the frame format asks for."""
    assert data[:7] == bytes.fromhex("04224d18604082")
    return data[:6] + b"\x1a" + data[7:]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_single_message_is_a_record(magic: int) -> None:
    data = message(magic, offset=7, key=b"key", value=b"value")

    batch = LegacyBatch(b"??" + data + b"??", 2)

    timestamp = 1000 if magic else -1
    assert [fields(record) for record in batch.records()] == [(7, timestamp, b"key", b"value", ())]
    batch.check_crc()
    assert batch.is_intact()
    assert batch.view == data
    assert (batch.magic, batch.size, batch.attributes) == (magic, len(data), 0)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (7, 7, 8)
    assert batch.max_timestamp == timestamp
    assert batch.crc == zlib.crc32(data[16:])
    assert repr(batch) == f"LegacyBatch(last_offset=7, magic={magic}, size={len(data)})"


def test_it_answers_what_v2_batches_answer() -> None:
    batch = LegacyBatch(message(1))

    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch) == (-1, -1, -1)
    assert (batch.base_sequence, batch.last_sequence) == (-1, -1)
    assert (batch.is_control, batch.is_transactional) == (False, False)
    assert batch.delete_horizon_ms is None


@pytest.mark.parametrize("magic", [0, 1])
def test_nulls_and_empty_values_are_told_apart(magic: int) -> None:
    (nothing,) = LegacyBatch(message(magic)).records()
    (empty,) = LegacyBatch(message(magic, key=b"", value=b"")).records()

    assert (nothing.key, nothing.value) == (None, None)
    assert (empty.key, empty.value) == (b"", b"")


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_inner_offsets_of_format_0_are_absolute(codec: Compression) -> None:
    inner = b"".join(message(0, offset=offset, value=b"%d" % offset) for offset in (50, 51, 54))

    batch = LegacyBatch(wrapper(0, codec, inner, offset=54))

    assert [fields(record)[:2] for record in batch.records()] == [(50, -1), (51, -1), (54, -1)]
    assert batch.compression is codec
    assert (batch.base_offset, batch.last_offset) == (50, 54)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_inner_offsets_of_format_1_are_relative_to_the_last(codec: Compression) -> None:
    inner = b"".join(message(1, offset=offset, timestamp=offset) for offset in (0, 1, 4))

    batch = LegacyBatch(wrapper(1, codec, inner, offset=104))

    assert [fields(record)[:2] for record in batch.records()] == [(100, 0), (101, 1), (104, 4)]
    assert [record.offset for record in batch.records(101, 104)] == [101]
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (100, 104, 5000)


def test_absolute_inner_offsets_in_format_1_are_kept() -> None:
    inner = b"".join(message(1, offset=offset) for offset in (103, 104))

    records = LegacyBatch(wrapper(1, GZIP, inner, offset=104)).records()

    assert [record.offset for record in records] == [103, 104]


def test_the_append_time_of_a_wrapper_is_every_records() -> None:
    inner = message(1, offset=0, timestamp=1) + message(1, offset=1, timestamp=2)
    batch = LegacyBatch(wrapper(1, GZIP, inner, offset=1, attributes=LOG_APPEND_TIME))

    assert [record.timestamp for record in batch.records()] == [5000, 5000]
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_the_timestamp_type_is_known_to_format_1_only() -> None:
    stamped = message(1, attributes=LOG_APPEND_TIME)
    older = message(0, attributes=LOG_APPEND_TIME)

    assert LegacyBatch(message(1)).timestamp_type is TimestampType.CREATE_TIME
    assert LegacyBatch(stamped).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert LegacyBatch(older).timestamp_type is TimestampType.CREATE_TIME


def test_the_broken_lz4_checksum_of_format_0_is_tolerated() -> None:
    frame = with_broken_lz4_checksum(bytes(compress(LZ4, message(0, offset=3, value=b"x"))))

    (record,) = LegacyBatch(message(0, offset=3, value=frame, attributes=LZ4)).records()

    assert record.value == b"x"


def test_the_broken_lz4_checksum_is_an_error_in_format_1() -> None:
    frame = with_broken_lz4_checksum(bytes(compress(LZ4, message(1, offset=0))))

    with pytest.raises(CorruptMessage, match="lz4: "):
        LegacyBatch(message(1, value=frame, attributes=LZ4)).records()


def test_a_bomb_in_a_wrapper_ends_at_the_limit() -> None:
    batch = LegacyBatch(wrapper(1, GZIP, bytes(10_000_000), offset=0))

    with pytest.raises(CorruptMessage, match="more than 1000 bytes"):
        batch.records(size_limit=1000)


def test_a_wrong_checksum_is_noticed() -> None:
    data = message(1, offset=7, value=b"value")
    batch = LegacyBatch(data[:-1] + b"!")

    assert not batch.is_intact()
    with pytest.raises(CorruptMessage, match="the message at offset 7 has checksum "):
        batch.check_crc()


INNER = message(1, value=b"value")
REFUSED = {
    "inner checksum": (
        wrapper(1, GZIP, INNER[:-1] + b"!", offset=9),
        "the message at offset 0 has checksum ",
    ),
    "inner of another format": (
        wrapper(1, GZIP, message(0), offset=9),
        "the message at offset 9 holds a message of format 0",
    ),
    "compressed twice": (
        wrapper(1, GZIP, wrapper(1, GZIP, INNER, offset=0), offset=9),
        "the message at offset 9 holds a message that is compressed again",
    ),
    "an empty wrapper": (
        wrapper(1, GZIP, b"", offset=9),
        "the message at offset 9 is compressed but holds no message",
    ),
    "a wrapper without value": (
        message(1, offset=9, attributes=GZIP),
        "the message at offset 9 is compressed but has no value",
    ),
    "an inner message that is cut off": (
        wrapper(1, GZIP, INNER + INNER[:20], offset=9),
        "the message at offset 0 has 39 bytes, but 20 are here",
    ),
    "an inner header that is cut off": (
        wrapper(1, GZIP, INNER + INNER[:10], offset=9),
        "byte 39: a message cut off after 10 bytes",
    ),
    "an inner message of v2": (
        wrapper(1, GZIP, INNER[:16] + b"\x02" + INNER[17:], offset=9),
        "the message at offset 0 has magic 2, which is no old format",
    ),
    "an lz4 frame too short to mend": (
        message(0, offset=9, value=b"\x04\x22", attributes=LZ4),
        "lz4: cut off after 2 bytes",
    ),
    "an lz4 header that is cut off": (
        message(0, offset=9, value=b"\x04\x22\x4d\x18\x60", attributes=LZ4),
        "lz4: ",
    ),
}


@pytest.mark.parametrize(("data", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_wrappers_are_refused(data: bytes, text: str) -> None:
    batch = LegacyBatch(data)

    with pytest.raises(CorruptMessage) as caught:
        batch.records()

    assert str(caught.value).startswith(text)


def edited(data: bytes, position: int, replacement: bytes) -> bytes:
    return data[:position] + replacement + data[position + len(replacement) :]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "byte 0: a message cut off after 0 bytes"),
        (INNER[:17], "byte 0: a message cut off after 17 bytes"),
        (INNER[:-1], "the message at offset 0 has 39 bytes, but 38 are here"),
        (
            edited(INNER, 8, b"\0\0\0\x15"),
            "the message at offset 0 has length 21, which is too short",
        ),
        (
            edited(INNER, 8, b"\xff" * 4),
            "the message at offset 0 has length -1, which is too short",
        ),
        (
            edited(INNER, 26, b"\xff\xff\xff\xfe"),
            "the message at offset 0 has a key or value of -2 bytes, with 5 left",
        ),
        (
            edited(INNER, 26, b"\0\0\0\x06"),
            "the message at offset 0 has a key or value of 6 bytes, with 5 left",
        ),
        (
            edited(INNER, 30, b"\0\0\0\x06"),
            "the message at offset 0 has a key or value of 6 bytes, with 5 left",
        ),
        (edited(INNER, 30, b"\0\0\0\x04"), "the message at offset 0 has 1 bytes left over"),
        (edited(INNER, 30, b"\xff" * 4), "the message at offset 0 has 5 bytes left over"),
    ],
)
def test_a_message_that_cannot_be_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage) as caught:
        LegacyBatch(data)

    assert str(caught.value) == text


@pytest.mark.parametrize(("codec", "text"), [(4, "know no zstd"), (6, "codec 6 is not known")])
def test_codecs_that_the_old_formats_do_not_know(codec: int, text: str) -> None:
    with pytest.raises(UnsupportedCompressionType, match=text):
        LegacyBatch(message(1, value=gzip.compress(INNER), attributes=codec)).records()


def test_an_lz4_frame_with_content_size_is_mended_too() -> None:
    import lz4.frame  # type: ignore[import-untyped]  # the package has neither stubs nor marker

    frame = bytearray(lz4.frame.compress(message(0, offset=3, value=b"x"), store_size=True))
    frame[14] ^= 0xFF

    (record,) = LegacyBatch(message(0, offset=3, value=bytes(frame), attributes=LZ4)).records()

    assert record.value == b"x"


def test_the_first_record_of_a_time_is_found() -> None:
    inner = b"".join(
        message(1, offset=number, value=b"v", timestamp=1000 + 10 * number) for number in range(3)
    )
    batch = LegacyBatch(wrapper(1, GZIP, inner, offset=22), 0)

    assert batch.find_since(1005, 0) == (21, 1010)
    assert batch.find_since(0, 22) == (22, 1020)
    assert batch.find_since(1021, 0) is None
