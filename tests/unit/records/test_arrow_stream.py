"""Columns that were selected, and streams whose arrays are made as they are asked for."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidArgument
from millstream.records.plain.arrow_abi import alive_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def append(kernel: Any, builder: Any, *values: bytes) -> None:
    writer = kernel.BatchWriter()
    for value in values:
        writer.append(1000, b"k", value, (("h", b"1"),))
    builder.append(bytes(writer.body()), len(values), 40, 1000, None, 3)


def records(kernel: Any, *values: bytes, columns: Sequence[str] | None = None) -> Any:
    builder = kernel.ArrowRecordsBuilder(columns)
    append(kernel, builder, *values)
    return builder.finish()


def test_fewer_columns_in_another_order(kernel: Any) -> None:
    selected = records(kernel, b"a", b"b").select(["offset", "headers", "value"])

    table = pa.table(selected)

    assert table.to_pydict() == {
        "offset": [40, 41],
        "headers": [[{"key": "h", "value": b"1"}]] * 2,
        "value": [b"a", b"b"],
    }
    assert pa.record_batch(selected).schema == table.schema
    assert len(selected) == 2


def test_a_selection_can_be_selected_from_and_outlives_the_whole(kernel: Any) -> None:
    whole = records(kernel, b"a")
    selected = whole.select(["value"]).select(["partition", "timestamp", "key"])
    del whole

    table = pa.table(selected)

    assert table.column_names == ["partition", "timestamp", "key"]
    assert table.column("partition").to_pylist() == [3]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["value", "valeu"], "there is no column 'valeu'; a record has key, value, headers"),
        ([], "name one or more, each once"),
        (["key", "key"], "name one or more, each once"),
        ("value", r"give a list of names, \['value'\]"),
    ],
)
def test_columns_that_cannot_be_selected(kernel: Any, columns: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        records(kernel, b"a").select(columns)
    with pytest.raises(InvalidArgument, match=problem):
        kernel.ArrowStream([], columns)


def test_columns_that_are_left_out_are_not_read(kernel: Any) -> None:
    read = records(kernel, b"a", b"b", columns=["value", "offset"])

    assert pa.table(read).to_pydict() == {"value": [b"a", b"b"], "offset": [40, 41]}
    assert pa.table(read.select(["offset"])).to_pydict() == {"offset": [40, 41]}
    with pytest.raises(InvalidArgument, match="column 'key' was left out when the rows were read"):
        read.select(["offset", "key"])
    stream = kernel.ArrowStream([read], ["key"])
    with pytest.raises((OSError, SystemError)):
        pa.table(stream)
    assert "column 'key' was left out" in str(stream.error)


@pytest.mark.parametrize("column", ["key", "value", "headers", "timestamp", "offset", "partition"])
def test_one_column_alone_counts_only_its_own_bytes(kernel: Any, column: str) -> None:
    whole = pa.table(records(kernel, b"a", b"bcd"))
    builder = kernel.ArrowRecordsBuilder([column])
    append(kernel, builder, b"a", b"bcd")
    sizes = {"key": 2, "value": 4, "headers": 4}

    assert builder.byte_count == sizes.get(column, 0)
    assert pa.table(builder.finish()) == whole.select([column])
    append(kernel, builder, b"a", b"bcd")
    assert pa.table(builder.finish()) == whole.select([column])


def test_views_say_the_same(kernel: Any) -> None:
    """Strings of up to 12 bytes lie in the views, longer ones beside them."""
    values = [b"", b"123456789012", b"1234567890123", b"x" * 1000, b"y"]
    whole = records(kernel, *values)

    table = pa.table(whole.with_views())
    table.validate(full=True)

    assert table.column("value").to_pylist() == values
    assert table.column("key").to_pylist() == [b"k"] * 5
    assert pa.table(whole.with_views().select(["value"])).column_names == ["value"]
    streamed = pa.table(kernel.ArrowStream([whole], ["offset", "value"], with_views=True))
    assert streamed.column("value").to_pylist() == values


def test_polars_takes_views_with_nulls(kernel: Any) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    writer = kernel.BatchWriter()
    for value in (b"a", None, b"b" * 13, None):
        writer.append(0, None, value)
    builder = kernel.ArrowRecordsBuilder()
    builder.append(bytes(writer.body()), 4, 0, 0)

    frame = pl.DataFrame(builder.finish().with_views())

    assert frame["value"].to_list() == [b"a", None, b"b" * 13, None]
    assert frame["key"].to_list() == [None] * 4


def test_a_stream_gives_one_array_after_the_other(kernel: Any) -> None:
    stream = kernel.ArrowStream([records(kernel, b"a", b"b"), records(kernel, b"c")], ["value"])

    reader = pa.RecordBatchReader.from_stream(stream)

    assert [batch.to_pydict() for batch in reader] == [{"value": [b"a", b"b"]}, {"value": [b"c"]}]
    assert stream.error is None


def test_a_stream_asks_only_for_what_is_read(kernel: Any) -> None:
    made: list[int] = []

    def make() -> Iterator[Any]:
        for number in range(5):
            made.append(number)
            yield records(kernel, b"%d" % number)

    reader = pa.RecordBatchReader.from_stream(kernel.ArrowStream(make()))
    reader.read_next_batch()
    reader.close()

    assert made == [0]


def test_an_empty_stream_has_a_schema(kernel: Any) -> None:
    table = pa.table(kernel.ArrowStream([]))

    assert table.num_rows == 0
    assert table.column_names == ["key", "value", "headers", "timestamp", "offset", "partition"]


def test_what_goes_wrong_is_told_in_words_and_kept(kernel: Any) -> None:
    def fail() -> Iterator[Any]:
        yield records(kernel, b"a")
        raise LookupError("the topic is gone")

    stream = kernel.ArrowStream(fail())

    # In plain Python the words are lost on the way: see arrow_abi.
    with pytest.raises((OSError, SystemError)) as raised:
        pa.table(stream)
    assert kernel.name == "plain" or "LookupError: the topic is gone" in str(raised.value)
    assert isinstance(stream.error, LookupError)


def test_nothing_is_left_behind(kernel: Any) -> None:
    gc.collect()
    before = alive_count()

    pa.table(kernel.ArrowStream([records(kernel, b"a")]))
    kernel.ArrowStream([records(kernel, b"a")]).__arrow_c_stream__()

    gc.collect()
    assert alive_count() == before


@pytest.mark.parametrize("implementation", ["python", ""])
def test_what_was_exported_may_live_until_the_interpreter_ends(implementation: str) -> None:
    """Foreign code lets go of capsules and arrays whenever it likes, at the very end too."""
    code = (
        "import builtins\n"
        "from millstream.records.kernel import ArrowRecordsBuilder, ArrowStream\n"
        "records = ArrowRecordsBuilder().finish()\n"
        "builtins.kept = [records.__arrow_c_array__(), records.__arrow_c_stream__(),\n"
        "    ArrowStream([records]).__arrow_c_stream__()]\n"
    )
    environment = {**os.environ, "MILLSTREAM_IMPL": implementation}

    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False
    )

    assert (process.returncode, process.stderr) == (0, b"")
