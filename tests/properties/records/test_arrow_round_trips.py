"""Whatever goes to Arrow comes back, and both kernels agree on whatever bytes they are given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import CorruptMessage
from tests.unit.records.kernels import PLAIN, compiled

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

INT64 = st.integers(-(2**63), 2**63 - 1)
FIELDS = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=20), FIELDS), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(-(2**61), 2**61), FIELDS, FIELDS, HEADERS), max_size=20)
STRING_TYPES = st.sampled_from(
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()]
)


def kernels() -> list[Any]:
    return [PLAIN, compiled()]


def body_of(kernel: Any, rows: list[Any]) -> bytes:
    writer = kernel.BatchWriter(base_timestamp=0)
    writer.extend(rows)
    return bytes(writer.body())


def outcome(kernel: Any, body: bytes, *arguments: Any) -> Any:
    """The rows as Arrow has them, or the words of the error."""
    builder = kernel.ArrowRecordsBuilder()
    try:
        builder.append(body, *arguments)
    except CorruptMessage as error:
        assert builder.row_count == 0
        return str(error)
    batch = pa.record_batch(builder.finish())
    batch.validate(full=True)
    return batch


@given(rows=ROWS)
def test_rows_survive_the_way_to_arrow_and_back(rows: list[Any]) -> None:
    for kernel in kernels():
        builder = kernel.ArrowRecordsBuilder()
        builder.append(body_of(kernel, rows), len(rows), 0, 0)
        records = builder.finish()
        pa.record_batch(records).validate(full=True)

        [chunk] = kernel.ArrowRecordsReader(records)
        back = kernel.BatchWriter(base_timestamp=0)
        back.extend_arrow(chunk, 0, len(chunk), 1 << 30, 0)

        assert [chunk.row(i) for i in range(len(chunk))] == rows
        assert bytes(back.body()) == body_of(kernel, rows)


@given(
    values=st.lists(st.none() | st.text(max_size=30)),
    kind=STRING_TYPES,
    cut=st.tuples(st.integers(0, 10), st.integers(0, 10)),
)
def test_slices_of_any_type_of_strings_are_read_right(
    values: list[str | None], kind: Any, cut: tuple[int, int]
) -> None:
    encoded = [None if value is None else value.encode() for value in values]
    table = pa.table({"value": pa.array(values, pa.string()).cast(kind)}).slice(*cut)

    for kernel in kernels():
        found = [
            chunk.row(i)[2] for chunk in kernel.ArrowRecordsReader(table) for i in range(len(chunk))
        ]
        assert found == encoded[cut[0] : cut[0] + cut[1]]


@given(
    rows=ROWS,
    damage=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 4),
    count=st.integers(-1, 22),
    base=st.tuples(INT64, INT64),
    stamp=st.none() | INT64,
)
def test_both_kernels_agree_on_damaged_batches(
    rows: list[Any],
    damage: list[tuple[int, int]],
    cut: int,
    count: int,
    base: tuple[int, int],
    stamp: int | None,
) -> None:
    body = bytearray(body_of(PLAIN, rows))
    for place, byte in damage:
        if place < len(body):
            body[place] = byte
    damaged = bytes(body[: len(body) - cut])

    plain, fast = (outcome(kernel, damaged, count, *base, stamp) for kernel in kernels())

    assert plain == fast


@given(key=st.binary(max_size=12))
def test_header_keys_that_are_not_utf8_become_the_same_text(key: bytes) -> None:
    rows = [(0, None, None, ((key.decode("utf-8", "surrogateescape"), b""),))]

    for kernel in kernels():
        headers = outcome(kernel, body_of(kernel, rows), 1, 0, 0)["headers"].to_pylist()
        assert headers[0][0]["key"] == key.decode("utf-8", "replace")
