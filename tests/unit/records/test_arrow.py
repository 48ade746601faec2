"""Batches to Arrow and Arrow to batches: sizes, limits, codecs, offsets, and what is left out."""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import Any

import pytest

from millstream.errors import CorruptMessage, InvalidArgument, MessageTooLarge
from millstream.records import (
    Compression,
    ControlType,
    EndTxnMarker,
    RecordBatch,
    RecordBatchBuilder,
    end_txn_marker,
)
from millstream.records.arrow import arrow_to_batches, records_to_arrow
from millstream.records.layout import HEADER_SIZE, TimestampType
from tests.unit.records.arrow_sources import ENTRY, Tampered

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def table_of(count: int, size: int = 10) -> Any:
    return pa.table(
        {
            "key": [b"%d" % i if i % 3 else None for i in range(count)],
            "value": [bytes([i % 256]) * size for i in range(count)],
            "timestamp": pa.array(range(count), pa.timestamp("ms", "UTC")),
        }
    )


def chunk_of(kernel: Any, table: Any) -> Any:
    [chunk] = kernel.ArrowRecordsReader(table.combine_chunks())
    return chunk


class TestExtendArrow:
    """`BatchWriter.extend_arrow`."""

    def test_writes_what_extend_writes(self, kernel: Any) -> None:
        headers = [[{"key": "h", "value": None}, {"key": "é", "value": b"x"}], None, []]
        table = pa.table(
            {
                "value": [b"v", None, b""],
                "key": [None, b"k", b""],
                "headers": pa.array(headers, pa.list_(ENTRY)),
                "timestamp": [7, -1, 2**40],
            }
        )
        by_rows, by_columns = kernel.BatchWriter(), kernel.BatchWriter()
        by_rows.extend(
            [
                (7, None, b"v", [("h", None), ("é", b"x")]),
                (-1, b"k", None),
                (2**40, b"", b""),
            ]
        )

        assert by_columns.extend_arrow(chunk_of(kernel, table), 0, 3, 1 << 20, 0) == 3

        assert by_columns.seal() == by_rows.seal()
        assert by_columns.size == by_rows.size
        assert by_columns.max_timestamp == 2**40
        assert by_columns.last_offset_delta == 2

    def test_many_rows_are_written_as_few_are(self, kernel: Any) -> None:
        table = table_of(3000)
        by_rows, by_columns = kernel.BatchWriter(), kernel.BatchWriter()
        by_rows.extend(
            zip(
                range(3000),
                table["key"].to_pylist(),
                table["value"].to_pylist(),
                strict=True,
            )
        )

        assert by_columns.extend_arrow(chunk_of(kernel, table), 0, 3000, 1 << 20, 0) == 3000

        assert by_columns.seal() == by_rows.seal()

    def test_rows_without_a_timestamp_get_the_default(self, kernel: Any) -> None:
        table = pa.table({"value": [b"", b""], "timestamp": [None, 5]})
        writer = kernel.BatchWriter()

        writer.extend_arrow(chunk_of(kernel, table), 0, 2, 1 << 20, 42)

        assert (writer.base_timestamp, writer.max_timestamp) == (42, 42)

    def test_stops_before_the_limit(self, kernel: Any) -> None:
        chunk = chunk_of(kernel, table_of(100))
        writer = kernel.BatchWriter()

        written = writer.extend_arrow(chunk, 0, 100, 500, 0)

        assert writer.size <= 500
        assert written == writer.record_count
        assert writer.extend_arrow(chunk, written, 100, 500, 0) == 0
        assert writer.extend_arrow(chunk, written, 100, writer.size + 30, 0) == 1

    def test_an_empty_batch_takes_one_row_whatever_its_size(self, kernel: Any) -> None:
        chunk = chunk_of(kernel, table_of(2, size=1000))
        writer = kernel.BatchWriter()

        assert writer.extend_arrow(chunk, 0, 2, 0, 0) == 1
        assert writer.extend_arrow(chunk, 1, 2, 0, 0) == 0

    def test_takes_the_rows_asked_for(self, kernel: Any) -> None:
        chunk = chunk_of(kernel, table_of(10))
        writer = kernel.BatchWriter()

        assert writer.extend_arrow(chunk, 3, 5, 1 << 20, 0) == 2
        assert writer.extend_arrow(chunk, 5, 5, 1 << 20, 0) == 0
        assert writer.extend_arrow(chunk, 5, 4, 1 << 20, 0) == 0

        records = kernel.decode_records(writer.body(), 2, 0, writer.base_timestamp)
        assert [record.value for record in records] == [b"\3" * 10, b"\4" * 10]

    def test_refuses_rows_outside_the_chunk(self, kernel: Any) -> None:
        chunk = chunk_of(kernel, table_of(2))

        with pytest.raises(IndexError):
            kernel.BatchWriter().extend_arrow(chunk, -1, 2, 1 << 20, 0)
        with pytest.raises(IndexError):
            kernel.BatchWriter().extend_arrow(chunk, 0, 3, 1 << 20, 0)

    def test_keeps_the_rows_before_a_wrong_one(self, kernel: Any) -> None:
        headers = pa.array([[], [], [{"key": None, "value": b""}]], pa.list_(ENTRY))
        chunk = chunk_of(kernel, pa.table({"value": [b""] * 3, "headers": headers}))
        writer = kernel.BatchWriter()

        with pytest.raises(InvalidArgument, match="row 2: the key of a header is null"):
            writer.extend_arrow(chunk, 0, 3, 1 << 20, 0)

        assert writer.record_count == 2

    def test_refuses_timestamps_too_far_apart(self, kernel: Any) -> None:
        table = pa.table({"value": [b"", b""], "timestamp": [-1, 2**63 - 1]})
        writer = kernel.BatchWriter()

        with pytest.raises(OverflowError, match="is too far from the batch's first, -1"):
            writer.extend_arrow(chunk_of(kernel, table), 0, 2, 1 << 20, 0)

    def test_refuses_an_offset_delta_past_31_bits(self, kernel: Any) -> None:
        writer = kernel.BatchWriter()
        writer.append(0, None, None, offset_delta=2**31 - 1)

        with pytest.raises(OverflowError, match="offset delta 2147483648 does not fit 31 bits"):
            writer.extend_arrow(chunk_of(kernel, table_of(1)), 0, 1, 1 << 20, 0)

    def test_refuses_a_row_past_the_format(self) -> None:
        """The offsets claim two gigabytes that are never read: the size is refused first."""
        kernel = pytest.importorskip("millstream._accel.codec.record_codec", reason="not built")
        arrow = pytest.importorskip("millstream._accel.arrow.records", reason="not built")

        def change(rows: Any) -> None:
            rows.children[0].contents.buffers[1] = offsets.buffer_info()[0]

        offsets = array("i", [0, 2**31 - 1])
        batch = pa.record_batch({"value": [b"v"]})
        [chunk] = arrow.ArrowRecordsReader(Tampered(batch, change))

        with pytest.raises(MessageTooLarge, match="bytes, the limit is 2147483647"):
            kernel.BatchWriter().extend_arrow(chunk, 0, 1, 1 << 20, 0)


def test_batches_stay_within_their_size_and_hold_every_row() -> None:
    table = pa.concat_tables([table_of(300, size) for size in (10, 100, 1)])

    batches = [RecordBatch(batch) for batch in arrow_to_batches(table, batch_bytes=5_000)]

    assert all(batch.size <= 5_000 for batch in batches)
    assert all(batch.is_intact() for batch in batches)
    assert len(batches) > 5
    values = [record.value for batch in batches for record in batch.records()]
    assert values == table["value"].to_pylist()


def test_a_row_larger_than_a_batch_has_its_own() -> None:
    table = pa.table({"value": [b"a", b"b" * 1000, b"c"]})

    batches = [RecordBatch(batch) for batch in arrow_to_batches(table, batch_bytes=200)]

    assert [batch.record_count for batch in batches] == [1, 1, 1]


def test_a_batch_goes_on_over_the_edge_of_a_chunk() -> None:
    table = pa.concat_tables([table_of(3), table_of(4)])

    [batch] = arrow_to_batches(table)

    assert RecordBatch(batch).record_count == 7


def test_no_rows_are_no_batches() -> None:
    assert list(arrow_to_batches(table_of(0))) == []


def test_rows_without_timestamps_get_the_default() -> None:
    [batch] = arrow_to_batches(pa.table({"value": [b"a"]}), default_timestamp=99)
    [unset] = arrow_to_batches(pa.table({"value": [b"a"]}))

    assert RecordBatch(batch).records()[0].timestamp == 99
    assert RecordBatch(unset).records()[0].timestamp == -1


@pytest.mark.parametrize("compression", Compression)
def test_what_goes_out_comes_back(compression: Compression) -> None:
    table = table_of(1000)
    batches = arrow_to_batches(table, batch_bytes=4_000, compression=compression)

    data = bytearray()
    for batch in batches:
        placed = bytearray(batch)
        RecordBatch(placed).patch(base_offset=len(data), leader_epoch=0)
        data += placed
    back = pa.table(records_to_arrow(data, partition=5))

    for name in ("key", "value", "timestamp"):
        assert back[name].to_pylist() == table[name].to_pylist()
    assert set(back["partition"].to_pylist()) == {5}


@pytest.mark.parametrize("batch_bytes", [0, HEADER_SIZE])
def test_a_batch_that_cannot_hold_a_header_is_refused_at_once(batch_bytes: int) -> None:
    with pytest.raises(InvalidArgument, match=f"batch_bytes is {batch_bytes}; a header alone"):
        arrow_to_batches(table_of(1), batch_bytes=batch_bytes)


def test_a_schema_that_cannot_be_used_is_refused_before_the_first_batch() -> None:
    with pytest.raises(InvalidArgument, match="there is no column 'value'"):
        arrow_to_batches(pa.table({"key": [b""]}))


def batch_of(*values: bytes, base_offset: int = 0, **options: Any) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend([(i, None, value) for i, value in enumerate(values)])
    return builder.build(base_offset=base_offset, **options)


def values_of(records: Any) -> list[bytes]:
    values: list[bytes] = pa.record_batch(records)["value"].to_pylist()
    return values


def test_control_batches_are_left_out() -> None:
    marker = end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, coordinator_epoch=0),
        producer_id=1,
        producer_epoch=0,
        timestamp=0,
    )

    assert values_of(records_to_arrow(batch_of(b"a") + marker + batch_of(b"b"))) == [b"a", b"b"]


def test_a_batch_that_the_fetch_cut_off_is_left_out() -> None:
    assert values_of(records_to_arrow(batch_of(b"a") + batch_of(b"b")[:-1])) == [b"a"]


def test_only_the_offsets_asked_for_are_taken() -> None:
    data = batch_of(b"a", b"b") + batch_of(b"c", b"d", base_offset=2)

    assert values_of(records_to_arrow(data, from_offset=1, to_offset=3)) == [b"b", b"c"]


def test_a_stamped_batch_has_the_time_of_the_append() -> None:
    data = batch_of(b"a", b"b", timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=1_000)

    table = pa.table(records_to_arrow(data))

    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1_000, 1_000]


def test_a_wrong_checksum_is_found_unless_the_caller_has_looked() -> None:
    data = bytearray(batch_of(b"a"))
    data[17] ^= 1

    with pytest.raises(CorruptMessage, match="has checksum"):
        records_to_arrow(data)
    assert values_of(records_to_arrow(data, check_crc=False)) == [b"a"]


def old_message(magic: int, offset: int, timestamp: int, key: Any, value: Any) -> bytes:
    """A message as brokers wrote them before record batches."""
    fields = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        fields += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, 4 + len(fields), zlib.crc32(fields)) + fields


@pytest.mark.parametrize(("magic", "timestamps"), [(0, [-1, -1]), (1, [7, 8])])
def test_old_formats_are_read(magic: int, timestamps: list[int]) -> None:
    old = old_message(magic, 0, 7, b"k", b"v") + old_message(magic, 1, 8, None, None)

    table = pa.table(records_to_arrow(old + batch_of(b"new", base_offset=2)))

    assert table["key"].to_pylist() == [b"k", None, None]
    assert table["value"].to_pylist() == [b"v", None, b"new"]
    assert table["offset"].to_pylist() == [0, 1, 2]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[:2] == timestamps
