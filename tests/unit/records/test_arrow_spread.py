"""Rows of Arrow data by partition: `ArrowChunk.spread` and `BatchWriter.extend_arrow_rows`."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidArgument

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def chunk_of(kernel: Any, **columns: Any) -> Any:
    """The only chunk of a table with these columns."""
    (chunk,) = kernel.ArrowRecordsReader(pa.RecordBatch.from_pydict(columns))
    return chunk


def test_rows_go_where_their_keys_hash(kernel: Any) -> None:
    keys = [b"key-%d" % (n % 7) for n in range(100)]
    chunk = chunk_of(kernel, key=keys, value=[b"v"] * 100)

    numbers, places = chunk.spread(0, 100, 5, True)

    spread = {partition: list(numbers[first:end]) for partition, first, end in places}
    expected: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        expected.setdefault(kernel.partition_for_key(key, 5), []).append(row)
    assert spread == expected
    assert [partition for partition, _, _ in places] == sorted(expected)


def test_a_partition_column_comes_before_keys_and_what_has_neither_is_left_open(
    kernel: Any,
) -> None:
    chunk = chunk_of(
        kernel,
        key=[b"a", b"a", None, None],
        value=[b"1", b"2", b"3", b"4"],
        partition=pa.array([2, None, None, 0], pa.int32()),
    )

    numbers, places = chunk.spread(0, 4, 3, True)

    by_key = kernel.partition_for_key(b"a", 3)
    of_row = {row: p for p, first, end in places for row in numbers[first:end]}
    assert of_row == {0: 2, 1: by_key, 2: -1, 3: 0}


def test_keys_can_be_ignored_and_a_part_of_the_rows_be_spread(kernel: Any) -> None:
    chunk = chunk_of(kernel, key=[b"a", b"b", b"c"], value=[b"1", b"2", b"3"])

    numbers, places = chunk.spread(1, 3, 4, False)

    assert list(numbers) == [1, 2]
    assert places == [(-1, 0, 2)]
    assert chunk.spread(2, 2, 4, True)[1] == []


def test_what_cannot_be_spread_is_refused(kernel: Any) -> None:
    chunk = chunk_of(kernel, value=[b"1", b"2"], partition=pa.array([0, 9], pa.int16()))

    with pytest.raises(InvalidArgument, match="row 1: there is no partition 9; the topic has 3"):
        chunk.spread(0, 2, 3, True)
    with pytest.raises(IndexError, match="rows 1 to 3 of 2"):
        chunk.spread(1, 3, 3, True)
    with pytest.raises(ValueError, match="at least 1"):
        chunk.spread(0, 1, 0, True)


@pytest.mark.parametrize("count", [10, 3000])
def test_picked_rows_make_the_same_batch_as_the_rows_by_themselves(kernel: Any, count: int) -> None:
    values = [b"value-%d" % n for n in range(count)]
    chunk = chunk_of(kernel, value=values)
    picked = memoryview(b"".join(n.to_bytes(4, "little") for n in range(1, count, 2))).cast("i")
    by_rows, by_columns = kernel.BatchWriter(), kernel.BatchWriter()

    by_rows.extend([(7, None, value) for value in values[1::2]])
    taken = by_columns.extend_arrow_rows(chunk, picked, 0, len(picked), 1 << 20, 7)

    assert taken == len(picked)
    assert by_columns.seal() == by_rows.seal()


def test_picked_rows_stop_at_the_limit_and_go_on_from_there(kernel: Any) -> None:
    chunk = chunk_of(kernel, value=[b"x" * 10] * 6)
    picked = memoryview(b"".join(n.to_bytes(4, "little") for n in (5, 3, 1))).cast("i")
    writer = kernel.BatchWriter()

    assert writer.extend_arrow_rows(chunk, picked, 0, 3, 0, 0) == 1
    assert writer.extend_arrow_rows(chunk, picked, 1, 3, 0, 0) == 0
    assert writer.extend_arrow_rows(chunk, picked, 1, 3, 1000, 0) == 2
    assert writer.extend_arrow_rows(chunk, picked, 3, 3, 1000, 0) == 0


def test_a_pick_outside_the_chunk_is_refused(kernel: Any) -> None:
    chunk = chunk_of(kernel, value=[b"x"])
    picked = memoryview((1).to_bytes(4, "little")).cast("i")

    with pytest.raises(IndexError):
        kernel.BatchWriter().extend_arrow_rows(chunk, picked, 0, 1, 100, 0)
    with pytest.raises(IndexError, match="places 0 to 2 of 1"):
        kernel.BatchWriter().extend_arrow_rows(chunk, picked, 0, 2, 100, 0)
