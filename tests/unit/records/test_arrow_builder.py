"""Records to Arrow: the columns, their nulls, who owns them, and who can take them."""

from __future__ import annotations

import gc
from ctypes import byref, c_int64
from typing import Any

import polars as pl
import pytest

from millstream.errors import CorruptMessage
from millstream.records.plain import arrow_abi
from millstream.records.plain.arrow_builder import _Sizes
from millstream.records.plain.record_codec import Record

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct(
                        [
                            pa.field("key", pa.string(), nullable=False),
                            pa.field("value", pa.binary()),
                        ]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
    ]
)

ROWS = [
    (1_700_000_000_000, b"k", b"v", (("h", b"x"), ("h", None))),
    (-5, None, b"", ()),
    (4_000_000_000_000, b"", None, (("é", b""),)),
    (0, None, None, ()),
]


def body_of(kernel: Any, rows: list[Any]) -> bytes:
    """The records section with these rows; timestamps are relative to 0."""
    writer = kernel.BatchWriter(base_timestamp=0)
    writer.extend(rows)
    return bytes(writer.body())


def built(kernel: Any, rows: list[Any], **options: Any) -> Any:
    builder = kernel.ArrowRecordsBuilder()
    builder.append(body_of(kernel, rows), len(rows), 0, 0, **options)
    return builder.finish()


def taken(records: Any) -> Any:
    batch = pa.record_batch(records)
    batch.validate(full=True)
    return batch


def test_memory_that_is_used_again_is_nobodys(kernel: Any) -> None:
    builder = kernel.ArrowRecordsBuilder()
    kept = []
    for number in range(12):
        value = bytes([65 + number]) * 100_000
        rows = [(0, None, value)] * 15
        builder.append(body_of(kernel, rows), len(rows), 0, 0)
        batch = taken(builder.finish())
        assert batch["value"].to_pylist() == [value] * 15
        if number % 3 == 0:
            kept.append((batch, value))
        del batch

    for batch, value in kept:
        assert batch["value"].to_pylist() == [value] * 15


def test_the_columns_are_those_of_a_record(kernel: Any) -> None:
    batch = taken(built(kernel, ROWS))

    assert batch.schema.equals(SCHEMA)


def test_every_part_of_a_record_arrives(kernel: Any) -> None:
    builder = kernel.ArrowRecordsBuilder()

    added = builder.append(body_of(kernel, ROWS), len(ROWS), 100, 0, partition=7)

    assert added == builder.row_count == len(ROWS)
    assert builder.byte_count == sum(map(len, (b"k", b"v", b"hx", b"h", "é".encode())))
    batch = taken(builder.finish())
    assert batch["key"].to_pylist() == [b"k", None, b"", None]
    assert batch["value"].to_pylist() == [b"v", b"", None, None]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [row[0] for row in ROWS]
    assert batch["offset"].to_pylist() == [100, 101, 102, 103]
    assert batch["partition"].to_pylist() == [7] * 4
    assert batch["headers"].to_pylist() == [
        [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        [],
        [{"key": "é", "value": b""}],
        [],
    ]


def test_a_column_without_nulls_has_no_bitmap(kernel: Any) -> None:
    batch = taken(built(kernel, [(0, b"k", b"v"), (0, b"", b"")]))

    assert [batch[name].null_count for name in ("key", "value")] == [0, 0]
    assert [batch[name].buffers()[0] for name in ("key", "value")] == [None, None]


@pytest.mark.parametrize("first_null", [0, 1, 7, 8, 9, 63, 64])
def test_nulls_are_where_they_were_however_late_the_first_comes(
    kernel: Any, first_null: int
) -> None:
    keys = [None if i >= first_null and i % 3 == first_null % 3 else b"%d" % i for i in range(70)]

    batch = taken(built(kernel, [(0, key, b"") for key in keys]))

    assert batch["key"].to_pylist() == keys
    assert batch["key"].null_count == keys.count(None)


def test_batches_add_up(kernel: Any) -> None:
    builder = kernel.ArrowRecordsBuilder()
    for base in range(0, 40, 4):
        builder.append(body_of(kernel, ROWS), len(ROWS), base, 0, partition=base // 4)

    batch = taken(builder.finish())

    assert batch["offset"].to_pylist() == list(range(40))
    assert batch["partition"].to_pylist() == [i // 4 for i in range(40)]
    assert batch["key"].to_pylist() == [row[1] for row in ROWS] * 10
    assert batch["headers"].to_pylist()[36:] == batch["headers"].to_pylist()[:4]


def test_only_offsets_in_the_range_are_taken(kernel: Any) -> None:
    batch = taken(built(kernel, [(i, b"", b"") for i in range(10)], from_offset=3, to_offset=6))

    assert batch["offset"].to_pylist() == [3, 4, 5]


def test_a_stamped_batch_has_one_timestamp(kernel: Any) -> None:
    batch = taken(built(kernel, ROWS, append_timestamp=42))

    assert set(batch["timestamp"].cast(pa.int64()).to_pylist()) == {42}


@pytest.mark.parametrize(
    ("tail", "count"), [(b"", 5), (b"x", 4), (b"", -1)], ids=["cut off", "left over", "negative"]
)
def test_a_corrupt_batch_adds_nothing(kernel: Any, tail: bytes, count: int) -> None:
    body = body_of(kernel, ROWS)
    builder = kernel.ArrowRecordsBuilder()
    builder.append(body, len(ROWS), 0, 0)
    rows, size = builder.row_count, builder.byte_count

    with pytest.raises(CorruptMessage):
        builder.append(body + tail, count, 0, 0)
    assert (builder.row_count, builder.byte_count) == (rows, size)
    builder.append(body, len(ROWS), len(ROWS), 0)

    batch = taken(builder.finish())
    assert batch["offset"].to_pylist() == list(range(8))
    assert batch["key"].to_pylist() == [row[1] for row in ROWS] * 2
    assert batch["key"].null_count == 4


def test_the_bitmap_of_a_batch_that_failed_leaves_no_trace(kernel: Any) -> None:
    valid = body_of(kernel, [(0, b"k", b"v")] * 5)
    nulls = body_of(kernel, [(0, None, None)] * 20)
    builder = kernel.ArrowRecordsBuilder()
    builder.append(valid, 5, 0, 0)
    with pytest.raises(CorruptMessage):
        builder.append(nulls + b"?", 20, 0, 0)
    builder.append(valid, 5, 0, 0)
    builder.append(nulls, 20, 0, 0)
    with pytest.raises(CorruptMessage):
        builder.append(nulls + b"?", 20, 0, 0)
    builder.append(valid, 5, 0, 0)

    batch = taken(builder.finish())

    assert batch["key"].to_pylist() == [b"k"] * 10 + [None] * 20 + [b"k"] * 5


def test_errors_name_the_record_and_the_byte(kernel: Any) -> None:
    body = body_of(kernel, ROWS)

    with pytest.raises(CorruptMessage) as of_decoder:
        kernel.decode_records(body[:-1], 4, 0, 0)
    with pytest.raises(CorruptMessage) as of_builder:
        kernel.ArrowRecordsBuilder().append(body[:-1], 4, 0, 0)

    assert str(of_builder.value) == str(of_decoder.value)


@pytest.mark.parametrize(
    "key",
    [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x92", b"\xf5\x80\x80\x80", b"ok\xe2\x28\xa1"],
)
def test_a_header_key_that_is_not_utf8_gets_replacement_characters(kernel: Any, key: bytes) -> None:
    rows = [(0, None, None, ((key.decode("utf-8", "surrogateescape"), b""),))]

    batch = taken(built(kernel, rows))

    assert batch["headers"].to_pylist()[0][0]["key"] == key.decode("utf-8", "replace")


def test_finish_empties_the_builder(kernel: Any) -> None:
    builder = kernel.ArrowRecordsBuilder()
    builder.append(body_of(kernel, ROWS), len(ROWS), 0, 0)
    first = builder.finish()

    assert (len(first), builder.row_count, builder.byte_count) == (4, 0, 0)
    builder.append(body_of(kernel, ROWS[:1]), 1, 50, 0)
    second = builder.finish()

    assert taken(second)["offset"].to_pylist() == [50]
    assert taken(first)["offset"].to_pylist() == [0, 1, 2, 3]


def test_nothing_is_a_table_without_rows(kernel: Any) -> None:
    batch = taken(kernel.ArrowRecordsBuilder().finish())

    assert batch.num_rows == 0
    assert batch.schema.equals(SCHEMA)


def test_it_may_be_taken_more_than_once(kernel: Any) -> None:
    records = built(kernel, ROWS)

    first, second = taken(records), taken(records)

    assert first.equals(second)
    assert first["value"].buffers()[2].address == second["value"].buffers()[2].address


def test_a_column_outlives_what_it_came_with(kernel: Any) -> None:
    records = built(kernel, ROWS)
    batch = taken(records)
    headers = batch["headers"]
    del records, batch
    gc.collect()

    assert headers.to_pylist()[2] == [{"key": "é", "value": b""}]


def test_a_capsule_that_nobody_takes_frees_what_it_has(kernel: Any) -> None:
    gc.collect()
    before = arrow_abi.alive_count()
    records = built(kernel, ROWS)

    records.__arrow_c_schema__()
    records.__arrow_c_array__(requested_schema=None)
    records.__arrow_c_stream__()

    assert arrow_abi.alive_count() == before
    assert taken(records).num_rows == 4


def test_a_consumer_may_move_one_child_and_release_the_rest(kernel: Any) -> None:
    gc.collect()
    before = arrow_abi.alive_count()
    capsule = built(kernel, ROWS).__arrow_c_array__()[1]
    parent = arrow_abi.take(capsule, b"arrow_array", arrow_abi.ArrowArray)
    del capsule
    source = parent.children[4].contents
    child = arrow_abi.ArrowArray.from_buffer_copy(source)
    source.release = arrow_abi.ReleaseArray()

    arrow_abi.release(parent)

    assert not parent.release
    offsets = (c_int64 * 4).from_address(child.buffers[1])
    assert list(offsets) == [0, 1, 2, 3]
    arrow_abi.release(child)
    assert not child.release
    assert arrow_abi.alive_count() == before


def test_a_stream_has_one_array_and_then_none(kernel: Any) -> None:
    reader = pa.RecordBatchReader.from_stream(built(kernel, ROWS))

    assert reader.schema.equals(SCHEMA)
    assert [batch.num_rows for batch in reader] == [4]


def test_a_stream_that_has_not_failed_has_no_error_to_tell(kernel: Any) -> None:
    capsule = built(kernel, ROWS).__arrow_c_stream__()
    stream = arrow_abi.take(capsule, b"arrow_array_stream", arrow_abi.ArrowArrayStream)

    assert stream.get_last_error(byref(stream)) is None
    arrow_abi.release(stream)


def test_polars_takes_it(kernel: Any) -> None:
    frame = pl.DataFrame(built(kernel, ROWS))

    assert frame["key"].to_list() == [b"k", None, b"", None]
    assert frame["headers"].to_list()[0] == [
        {"key": "h", "value": b"x"},
        {"key": "h", "value": None},
    ]


def test_pandas_takes_it_through_pyarrow(kernel: Any) -> None:
    frame = pa.table(built(kernel, ROWS)).to_pandas()

    assert frame["value"].tolist() == [b"v", b"", None, None]
    assert str(frame["timestamp"].dt.tz) == "UTC"


def test_duckdb_takes_it(kernel: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    records = built(kernel, ROWS)

    found = duckdb.sql('select "offset", key from records where key is not null').fetchall()

    assert found == [(0, b"k"), (2, b"")]
    del records


def test_nanoarrow_takes_it(kernel: Any) -> None:
    nanoarrow = pytest.importorskip("nanoarrow", reason="nanoarrow is not installed")

    array = nanoarrow.Array(built(kernel, ROWS))

    assert [row["offset"] for row in array.to_pylist()] == [0, 1, 2, 3]


def test_a_column_past_32_bits_is_refused() -> None:
    """The compiled builder's limit needs two gigabytes to reach; the plain one can be asked."""
    records = [Record(0, 0, None, b"12345")]

    with pytest.raises(OverflowError, match="column value would pass 2147483647 bytes"):
        _Sizes(value=2**31 - 5).with_records(records)

    assert _Sizes(value=2**31 - 6).with_records(records).value == 2**31 - 1


def test_records_of_every_width(kernel: Any) -> None:
    """Lengths and deltas around each width of a varint, also as the last record of a body."""
    sizes = [0, 1, 11, 31, 32, 33, 63, 64, 65, 255, 256, 257, 8_191, 8_192, 1_048_575, 1_048_576]
    for size in sizes:
        rows = [
            (timestamp, key, value, headers)
            for timestamp in (0, 63, 64, 8_192, 1 << 20, 1 << 40)
            for key, value in ((b"k" * size, b"v"), (None, b"v" * size), (b"k" * size, None))
            for headers in ((), (("h", b"x"),))[: 1 + (size < 64)]
        ]

        table = taken(built(kernel, rows))

        assert table.column("key").to_pylist() == [row[1] for row in rows]
        assert table.column("value").to_pylist() == [row[2] for row in rows]
        assert table.column("offset").to_pylist() == list(range(len(rows)))
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == [row[0] for row in rows]


def test_rows_that_were_expected_need_not_come(kernel: Any) -> None:
    rows = [(0, b"k", b"v" * 100, ())] * 50
    body = body_of(kernel, rows)
    builder = kernel.ArrowRecordsBuilder()
    for expected in (0, 10, len(body), 100 * len(body)):
        builder.expect(expected)
        for _ in range(3):
            builder.append(body, len(rows), 0, 0)

        assert len(builder.finish()) == 150
