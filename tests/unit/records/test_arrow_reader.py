"""Arrow to records: every layout, every level of nulls, and words for what cannot be used."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from millstream.errors import InvalidArgument
from tests.unit.records.arrow_sources import ENTRY, OnlyArray, rows_of

pd: Any = pytest.importorskip("pandas", reason="pandas is not installed")
pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

STRINGS = [b"", b"short", None, b"exactly12byt", b"longer than twelve bytes", b"\xc3\xa9"]
HEADERS = [[("h", b"1"), ("h", None)], [], None, [("a header longer than twelve", b"v" * 20)]]
HEADER_TUPLES = [(("h", b"1"), ("h", None)), (), (), (("a header longer than twelve", b"v" * 20),)]


def values_of(kernel: Any, data: Any) -> list[bytes | None]:
    return [value for _, _, value, _ in rows_of(kernel, data)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
    ],
    ids=str,
)
class TestEveryLayoutOfStrings:
    def test_is_read(self, kernel: Any, kind: Any) -> None:
        table = pa.table({"value": pa.array(STRINGS).cast(kind), "key": pa.array(STRINGS, kind)})

        rows = rows_of(kernel, table)

        assert [value for _, _, value, _ in rows] == STRINGS
        assert [key for _, key, _, _ in rows] == STRINGS

    def test_is_read_from_a_slice(self, kernel: Any, kind: Any) -> None:
        table = pa.table({"value": pa.array(STRINGS, kind)})

        assert values_of(kernel, table.slice(2, 3)) == STRINGS[2:5]

    def test_is_read_from_slices_of_slices(self, kernel: Any, kind: Any) -> None:
        column = pa.array(STRINGS * 3, kind).slice(1)
        rows = pa.StructArray.from_arrays([column], ["value"]).slice(3, 9)

        assert values_of(kernel, OnlyArray(rows)) == (STRINGS * 3)[4:13]


def test_fixed_size_binary_is_read(kernel: Any) -> None:
    table = pa.table({"value": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2))})

    assert values_of(kernel, table) == [b"ab", None, b"cd", b"ef"]
    assert values_of(kernel, table.slice(2)) == [b"cd", b"ef"]


def test_fixed_size_binary_of_no_size_is_read(kernel: Any) -> None:
    table = pa.table({"value": pa.array([b"", None], pa.binary(0))})

    assert values_of(kernel, table) == [b"", None]


def test_columns_may_be_left_out_or_be_all_null(kernel: Any) -> None:
    [alone] = kernel.ArrowRecordsReader(pa.table({"value": [b"v"]}))
    [nulls] = kernel.ArrowRecordsReader(
        pa.table({name: pa.nulls(2) for name in ("key", "value", "headers", "timestamp")})
    )

    assert alone.row(0) == (None, None, b"v", ())
    assert (alone.has_key, alone.has_headers, alone.has_timestamp) == (False, False, False)
    assert [nulls.row(i) for i in range(2)] == [(None, None, None, ())] * 2
    assert (nulls.has_key, nulls.has_headers, nulls.has_timestamp) == (True, True, True)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(ENTRY),
        pa.large_list(ENTRY),
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=["list", "large_list", "value first", "views", "map"],
)
class TestEveryShapeOfHeaders:
    def column(self, kind: Any) -> Any:
        if pa.types.is_map(kind):
            return pa.array(HEADERS, kind)
        return pa.array(
            [row and [{"key": key, "value": value} for key, value in row] for row in HEADERS], kind
        )

    def test_is_read(self, kernel: Any, kind: Any) -> None:
        table = pa.table({"value": [b""] * 4, "headers": self.column(kind)})

        assert [headers for *_, headers in rows_of(kernel, table)] == HEADER_TUPLES

    def test_is_read_from_a_slice(self, kernel: Any, kind: Any) -> None:
        column = pa.concat_arrays([self.column(kind)] * 3).slice(3, 8)
        table = pa.table({"value": [b""] * 8, "headers": column}).slice(1, 6)

        assert [headers for *_, headers in rows_of(kernel, table)] == (HEADER_TUPLES * 3)[4:10]


def test_lists_without_entries_may_be_of_any_type(kernel: Any) -> None:
    table = pa.table({"value": [b"", b""], "headers": pa.array([[], None], pa.list_(pa.null()))})

    assert [headers for *_, headers in rows_of(kernel, table)] == [(), ()]


def test_header_values_may_be_text_and_all_null(kernel: Any) -> None:
    text = pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))
    null = pa.array([[{"key": "k", "value": None}]])

    assert rows_of(kernel, pa.table({"value": [b""], "headers": text}))[0][3] == (("k", b"v"),)
    assert rows_of(kernel, pa.table({"value": [b""], "headers": null}))[0][3] == (("k", None),)


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.int64(), -1, -1),
        (pa.timestamp("s"), 1_700_000_000, 1_700_000_000_000),
        (pa.timestamp("ms", "UTC"), -1, -1),
        (pa.timestamp("us", "Europe/Rome"), 1_999, 1),
        (pa.timestamp("us"), -1, -1),
        (pa.timestamp("us"), -1_000, -1),
        (pa.timestamp("ns"), 1_999_999, 1),
        (pa.timestamp("ns"), -1_000_001, -2),
    ],
    ids=str,
)
def test_times_become_milliseconds_rounded_down(
    kernel: Any, kind: Any, stored: int, expected: int
) -> None:
    column = pa.array([stored, None], pa.int64()).cast(kind)

    rows = rows_of(kernel, pa.table({"value": [b"", b""], "timestamp": column}))

    assert [timestamp for timestamp, *_ in rows] == [expected, None]


def test_a_time_past_64_bits_of_milliseconds_is_refused(kernel: Any) -> None:
    column = pa.array([2**60], pa.int64()).cast(pa.timestamp("s"))

    with pytest.raises(OverflowError, match="row 0: the timestamp does not fit 64 bits of milli"):
        rows_of(kernel, pa.table({"value": [b""], "timestamp": column}))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_partitions_are_read_from_integers(kernel: Any, kind: Any) -> None:
    table = pa.table({"value": [b""] * 4, "partition": pa.array([0, 5, None, 127], kind)})

    [chunk] = kernel.ArrowRecordsReader(table.slice(1))

    assert chunk.has_partition
    assert chunk.partitions().format == "i"
    assert chunk.partitions().tolist() == [5, -1, 127]


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_a_partition_that_cannot_be_is_refused(kernel: Any, partition: int) -> None:
    [chunk] = kernel.ArrowRecordsReader(
        pa.table({"value": [b"", b""], "partition": [0, partition]})
    )

    with pytest.raises(InvalidArgument, match=f"row 1: partition {partition} is not in"):
        chunk.partitions()


def test_without_the_column_there_are_no_partitions(kernel: Any) -> None:
    [alone] = kernel.ArrowRecordsReader(pa.table({"value": [b""]}))
    [nulls] = kernel.ArrowRecordsReader(pa.table({"value": [b""], "partition": pa.nulls(1)}))

    assert not alone.has_partition
    assert alone.partitions() is None
    assert nulls.partitions().tolist() == [-1]


def test_chunks_come_in_order_and_once(kernel: Any) -> None:
    table = pa.chunked_array([[b"a", b"b"], [], [b"c"]])
    reader = kernel.ArrowRecordsReader(pa.table({"value": table}))

    assert [[chunk.row(i)[2] for i in range(len(chunk))] for chunk in reader] == [
        [b"a", b"b"],
        [],
        [b"c"],
    ]
    assert list(reader) == []


def test_an_object_with_only_an_array_is_one_chunk(kernel: Any) -> None:
    reader = kernel.ArrowRecordsReader(OnlyArray(pa.record_batch({"value": [b"a"]})))

    assert [len(chunk) for chunk in reader] == [1]
    assert list(reader) == []


def test_a_chunk_outlives_its_reader(kernel: Any) -> None:
    reader = kernel.ArrowRecordsReader(pa.table({"value": [b"a" * 100]}))
    chunk = next(reader)
    del reader

    assert chunk.row(0)[2] == b"a" * 100


def test_rows_outside_the_chunk_are_refused(kernel: Any) -> None:
    [chunk] = kernel.ArrowRecordsReader(pa.table({"value": [b"a"]}))

    for index in (-1, 1):
        with pytest.raises(IndexError, match=f"row {index} of 1"):
            chunk.row(index)


def test_polars_gives_views_and_they_are_read(kernel: Any) -> None:
    frame = pl.DataFrame(
        {
            "key": ["k", None, "a key longer than twelve"],
            "value": [b"v", b"a value longer than twelve", None],
            "headers": [[{"key": "h", "value": b"x"}], [], None],
            "timestamp": pl.Series([1, None, 3], dtype=pl.Datetime("us", "UTC")),
        }
    )

    assert rows_of(kernel, frame) == [
        (0, b"k", b"v", (("h", b"x"),)),
        (None, None, b"a value longer than twelve", ()),
        (0, b"a key longer than twelve", None, ()),
    ]
    assert rows_of(kernel, frame.slice(1, 1))[0][2] == b"a value longer than twelve"


def test_pandas_is_read(kernel: Any) -> None:
    frame = pd.DataFrame({"key": ["a", None], "value": [b"x", b"y"]})

    assert [row[1:3] for row in rows_of(kernel, frame)] == [(b"a", b"x"), (None, b"y")]


def test_what_was_written_to_arrow_is_read_back(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.extend([(5, b"k", None, {"h": None}), (6, None, b"v")])
    builder = kernel.ArrowRecordsBuilder()
    builder.append(writer.body(), 2, 0, 5, partition=3)
    records = builder.finish()

    for data in (records, OnlyArray(records)):
        assert rows_of(kernel, data) == [(5, b"k", None, (("h", None),)), (6, None, b"v", ())]
    [chunk] = kernel.ArrowRecordsReader(records)
    assert chunk.partitions().tolist() == [3, 3]
