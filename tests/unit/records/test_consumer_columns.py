"""What a fetch brought, as Arrow rows: bounds, and what is left out as of records; both kernels."""

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


@pytest.mark.parametrize("at", [-1, -30, 21, 22, 57, 61])
def test_damage_is_found_by_the_checksum_and_nothing_is_given(kernel: Any, at: int) -> None:
    """Whatever the bytes then look like: a record that is cut off, a count, the codec."""
    damaged = fetched(kernel, flipped(batch(b"a" * 20, b"b" * 20), at))

    for take in (rows, lambda _kernel, batches: values(batches, 9), rows):
        with pytest.raises(CorruptMessage, match="checksum"):
            take(kernel, damaged)
    assert damaged.position == 0


def test_damage_is_not_looked_for_unless_asked(kernel: Any) -> None:
    damaged = fetched(kernel, flipped(batch(b"a"), 17), check_crc=False)

    assert rows(kernel, damaged) == [b"a"]


def test_something_else_can_stand_in_for_the_builder(kernel: Any) -> None:
    class Noting:
        byte_count = 0

        def __init__(self) -> None:
            self.appended: list[Any] = []

        def append(self, body: Any, *numbers: Any) -> int:
            self.appended.append((bytes(body), *numbers))
            return 2

    noting = Noting()
    data = batch(b"a", b"b", base=5)
    batches = fetched(kernel, data, 6)

    assert batches.take_arrow(noting, 1 << 20) == 2
    [(body, count, base_offset, _timestamp, stamp, partition, start, _end)] = noting.appended
    assert (body, count, base_offset, stamp) == (data[61:], 2, 5, None)
    assert (partition, start) == (7, 6)
    with pytest.raises(CorruptMessage, match="checksum"):
        fetched(kernel, flipped(data, -1)).take_arrow(noting, 1 << 20)
