"""`RecordBatch` in place: header, checks, patches and stamps; `split_batches` over a buffer."""

from __future__ import annotations

import pytest

from millstream.errors import CorruptMessage, UnsupportedCompressionType
from millstream.records import (
    Compression,
    LegacyBatch,
    RecordBatch,
    RecordBatchBuilder,
    TimestampType,
    split_batches,
)
from millstream.records.layout import ATTRIBUTES_AT, HEADER, LENGTH_AT, MAGIC_AT
from tests.unit.records.test_decoding import BATCH_A, fields
from tests.unit.records.test_legacy import message

TIME = 1_700_000_000_000


def built(count: int = 3, **options: object) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend([(TIME + i, b"%d" % i, b"value") for i in range(count)])
    return builder.build(**options)  # type: ignore[arg-type]  # each test gives what fits


def with_bytes(batch: bytes, position: int, replacement: bytes) -> bytes:
    return batch[:position] + replacement + batch[position + len(replacement) :]


def test_the_header_is_read_in_place() -> None:
    buffer = b"??" + BATCH_A + b"??"

    batch = RecordBatch(buffer, 2)

    assert batch.base_offset == 0
    assert batch.size == 85
    assert batch.leader_epoch == 0
    assert batch.magic == 2
    assert batch.crc == 0x97F4442A
    assert batch.attributes == 0
    assert batch.last_offset_delta == 1
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME, TIME + 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.record_count == 2
    assert batch.view == BATCH_A
    assert batch.view.obj is buffer
    assert repr(batch) == "RecordBatch(base_offset=0, last_offset=1, record_count=2, size=85)"


def test_the_attributes_are_explained() -> None:
    plain = RecordBatch(built())
    rich = RecordBatch(
        built(
            compression=Compression.ZSTD,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=77,
            is_transactional=True,
            base_timestamp=55,
            has_delete_horizon=True,
        )
    )

    assert plain.compression is Compression.NONE
    assert plain.timestamp_type is TimestampType.CREATE_TIME
    assert (plain.is_transactional, plain.is_control) == (False, False)
    assert plain.delete_horizon_ms is None
    assert rich.compression is Compression.ZSTD
    assert rich.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (rich.is_transactional, rich.is_control) == (True, False)
    assert rich.delete_horizon_ms == 55


def test_offsets_follow_from_the_base() -> None:
    batch = RecordBatch(built(base_offset=100))

    assert (batch.last_offset, batch.next_offset) == (102, 103)


@pytest.mark.parametrize(
    ("base_sequence", "last_sequence"),
    [(-1, -1), (0, 2), (10, 12), (2**31 - 1, 1), (2**31 - 3, 2**31 - 1)],
)
def test_sequences_wrap(base_sequence: int, last_sequence: int) -> None:
    assert RecordBatch(built(base_sequence=base_sequence)).last_sequence == last_sequence


@pytest.mark.parametrize("codec", Compression)
def test_records_are_read_through_every_codec(codec: Compression) -> None:
    batch = RecordBatch(built(base_offset=10, compression=codec))

    assert [fields(record) for record in batch.records()] == [
        (10 + i, TIME + i, b"%d" % i, b"value", ()) for i in range(3)
    ]
    assert [record.offset for record in batch.records(11, 12)] == [11]
    with pytest.raises(CorruptMessage):
        RecordBatch(built(30, compression=Compression.GZIP)).records(size_limit=10)


def test_the_append_time_is_every_records() -> None:
    batch = RecordBatch(built(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=77))

    assert [record.timestamp for record in batch.records()] == [77, 77, 77]


def test_an_uncompressed_body_is_in_place() -> None:
    data = built()

    body = RecordBatch(data).body()

    assert isinstance(body, memoryview)
    assert body.obj is data


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    empty = RecordBatchBuilder().build(last_offset_delta=4, compression=Compression.LZ4)
    of_java = bytearray(empty)
    of_java[ATTRIBUTES_AT + 1] = Compression.LZ4

    for data in (empty, of_java):
        batch = RecordBatch(data)
        assert batch.records() == []
        assert (batch.record_count, batch.last_offset) == (0, 4)


def test_the_checksum_is_checked_on_demand() -> None:
    batch = RecordBatch(with_bytes(BATCH_A, 70, b"!"))

    assert RecordBatch(BATCH_A).is_intact()
    RecordBatch(BATCH_A).check_crc()
    assert not batch.is_intact()
    with pytest.raises(CorruptMessage, match="at offset 0 has checksum 97f4442a, its bytes give "):
        batch.check_crc()


def test_a_patch_is_in_place_and_keeps_the_checksum() -> None:
    buffer = bytearray(b"__" + BATCH_A)
    batch = RecordBatch(buffer, 2)

    batch.patch(base_offset=12345, leader_epoch=7)

    again = RecordBatch(buffer, 2)
    assert (again.base_offset, again.leader_epoch) == (12345, 7)
    assert (batch.base_offset, batch.leader_epoch) == (12345, 7)
    assert again.is_intact()
    assert again.records()[1].offset == 12346


def test_bytes_that_are_read_only_cannot_be_patched() -> None:
    with pytest.raises(TypeError):
        RecordBatch(BATCH_A).patch(1, 2)


@pytest.mark.parametrize("kind", TimestampType)
def test_a_stamp_is_in_place_with_a_new_checksum(kind: TimestampType) -> None:
    buffer = bytearray(built(is_transactional=True, producer_id=1))
    batch = RecordBatch(buffer)

    batch.stamp(kind, 99)

    again = RecordBatch(buffer)
    assert again.is_intact()
    assert (again.timestamp_type, again.max_timestamp) == (kind, 99)
    assert again.is_transactional
    assert (batch.crc, batch.timestamp_type, batch.max_timestamp) == (again.crc, kind, 99)
    assert [record.timestamp for record in again.records()] == (
        [99] * 3 if kind else [TIME, TIME + 1, TIME + 2]
    )


def test_a_stamp_can_be_taken_back() -> None:
    buffer = bytearray(built())
    batch = RecordBatch(buffer)

    batch.stamp(TimestampType.LOG_APPEND_TIME, 99)
    batch.stamp(TimestampType.CREATE_TIME, TIME + 2)

    assert bytes(buffer) == built()


@pytest.mark.parametrize(
    ("data", "start", "text"),
    [
        (b"", 0, "a batch has at least 61 bytes, here are 0"),
        (BATCH_A[:60], 0, "a batch has at least 61 bytes, here are 60"),
        (BATCH_A, 30, "a batch has at least 61 bytes, here are 55"),
        (BATCH_A[:84], 0, "the batch has 85 bytes, but 84 are here"),
        (
            with_bytes(BATCH_A, LENGTH_AT, (48).to_bytes(4, "big")),
            0,
            "the batch's length is 48, below 49",
        ),
        (with_bytes(BATCH_A, LENGTH_AT, b"\xff" * 4), 0, "the batch's length is -1, below 49"),
        (
            with_bytes(BATCH_A, LENGTH_AT, b"\x7f\xff\xff\xff"),
            0,
            "the batch has 2147483659 bytes, but 85 are here",
        ),
        (
            with_bytes(BATCH_A, MAGIC_AT, b"\x01"),
            0,
            "the batch has magic 1, not 2; split_batches reads older ones",
        ),
    ],
)
def test_a_header_that_cannot_be_is_refused(data: bytes, start: int, text: str) -> None:
    with pytest.raises(CorruptMessage) as caught:
        RecordBatch(data, start)

    assert str(caught.value) == text


def test_an_unknown_codec_is_named() -> None:
    batch = RecordBatch(with_bytes(BATCH_A, ATTRIBUTES_AT + 1, b"\x05"))

    with pytest.raises(UnsupportedCompressionType, match="codec 5 is not known"):
        batch.records()


def test_a_negative_record_count_is_corrupt() -> None:
    data = bytearray(BATCH_A)
    data[HEADER.size - 4 : HEADER.size] = b"\xff" * 4

    with pytest.raises(CorruptMessage, match="the record count is -1"):
        RecordBatch(data).records()


def test_batches_of_every_format_are_split() -> None:
    old, older = message(1, offset=2, value=b"1"), message(0, offset=3, value=b"0")

    batches = list(split_batches(BATCH_A + old + older + BATCH_A))

    assert [type(batch) for batch in batches] == [
        RecordBatch,
        LegacyBatch,
        LegacyBatch,
        RecordBatch,
    ]
    assert [batch.size for batch in batches] == [85, len(old), len(older), 85]
    assert [record.value for batch in batches for record in batch.records()] == [
        b"v1", b"v2", b"1", b"0", b"v1", b"v2",
    ]  # fmt: skip


@pytest.mark.parametrize("tail", [1, 11, 12, 16, 17, 60, 61, 84])
def test_a_partial_batch_at_the_end_is_left_out(tail: int) -> None:
    assert len(list(split_batches(memoryview(BATCH_A + BATCH_A[:tail])))) == 1
    assert list(split_batches(BATCH_A[:tail])) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (with_bytes(BATCH_A, MAGIC_AT, b"\x03"), "byte 85: a batch of magic 3, which is not known"),
        (
            with_bytes(BATCH_A, LENGTH_AT, b"\0\0\0\x30"),
            "byte 85: a batch of length 48, below 49 for magic 2",
        ),
        (
            with_bytes(BATCH_A, LENGTH_AT, b"\x80\0\0\0"),
            "byte 85: a batch of length -2147483648, below 49 for magic 2",
        ),
        (
            with_bytes(message(1), LENGTH_AT, b"\0\0\0\x15"),
            "byte 85: a batch of length 21, below 22 for magic 1",
        ),
        (
            with_bytes(message(0), LENGTH_AT, b"\0\0\0\x0d"),
            "byte 85: a batch of length 13, below 14 for magic 0",
        ),
    ],
)
def test_splitting_stops_at_a_header_that_cannot_be(data: bytes, text: str) -> None:
    batches = split_batches(BATCH_A + data)

    assert next(batches).size == 85
    with pytest.raises(CorruptMessage) as caught:
        next(batches)
    assert str(caught.value) == text


@pytest.mark.parametrize("codec", Compression)
def test_a_record_is_found_by_its_time_without_making_any(codec: Compression) -> None:
    builder = RecordBatchBuilder()
    builder.extend([(100 + number, None, b"v") for number in range(10)])
    batch = RecordBatch(builder.build(base_offset=50, compression=codec))

    assert batch.find_since(104, 0) == (54, 104)
    assert batch.find_since(104, 57) == (57, 107)
    assert batch.find_since(110, 0) is None
    assert batch.find_since(0, 60) is None


def test_all_records_of_a_stamped_batch_have_its_time() -> None:
    builder = RecordBatchBuilder()
    builder.extend([(100, None, b"v"), (900, None, b"v")])
    batch = RecordBatch(
        builder.build(
            base_offset=50, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=500
        )
    )

    assert batch.find_since(500, 51) == (51, 500)
    assert batch.find_since(501, 0) is None
