"""What a fetch brought, as Arrow rows: bounds, and the same left out as of records; both twins."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import CorruptMessage
from millstream.records import Compression
from tests.unit.records.test_consumer_records import (
    ABORT,
    batch,
    fetched,
    flipped,
    marker,
    transaction,
    values,
)
from tests.unit.records.test_legacy import message


def rows(kernel: Any, batches: Any, *, byte_limit: int = 1 << 20, **bounds: int) -> list[bytes]:
    pa: Any = pytest.importorskip("pyarrow", reason="rows are read with pyarrow")
    builder = kernel.ArrowRecordsBuilder()
    count = batches.take_arrow(builder, byte_limit, **bounds)
    table = pa.table(pa.record_batch(builder.finish()))
    assert table.num_rows == count
    return table.column("value").to_pylist()  # type: ignore[no-any-return]


def test_rows_are_taken_up_to_an_offset(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a", b"b") + batch(b"c", b"d", base=2), 1)

    assert rows(kernel, batches, to_offset=3) == [b"b", b"c"]
    assert (batches.position, batches.leader_epoch, batches.is_empty) == (3, 3, False)
    assert rows(kernel, batches) == [b"d"]
    assert (batches.position, batches.is_empty) == (4, True)


def test_rows_end_with_the_batch_that_reaches_the_limit_of_bytes(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a" * 10) + batch(b"b" * 10, base=1) + batch(b"c", base=2))

    assert rows(kernel, batches, byte_limit=15) == [b"a" * 10, b"b" * 10]
    assert rows(kernel, batches) == [b"c"]


def test_rows_go_on_where_records_ended(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a", b"b", b"c", compression=Compression.LZ4))

    assert values(batches, 1) == [b"a"]
    assert rows(kernel, batches) == [b"b", b"c"]


def test_rows_leave_out_what_records_leave_out(kernel: Any) -> None:
    data = (
        transaction(b"aborted", 0, 1)
        + message(1, offset=1, value=b"old")
        + marker(ABORT, 2, 1)
        + batch(b"plain", base=3)
    )

    assert rows(kernel, fetched(kernel, data, aborted=[(1, 0)])) == [b"old", b"plain"]


def test_rows_before_a_fault_are_given_first(kernel: Any) -> None:
    good = batch(b"a")
    batches = fetched(kernel, good + flipped(batch(b"b", base=1), len(good) - 1))

    assert rows(kernel, batches) == [b"a"]
    with pytest.raises(CorruptMessage):
        rows(kernel, batches)
