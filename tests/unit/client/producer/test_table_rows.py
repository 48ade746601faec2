"""Rows of tables in the accumulator: larger batches, memory that grows, rows that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.client.producer.partition_queues import ANY_PARTITION, MemoryNotFree
from millstream.errors import ClientClosed, InvalidArgument, MessageTooLarge
from millstream.records import RecordBatch
from millstream.records.arrow import ArrowRecordsReader
from millstream.records.compression import Compression
from tests.unit.client.producer.fakes import TOPIC, Bench

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def rows(*values: bytes, **columns: Any) -> Any:
    """The only chunk of a table."""
    (chunk,) = ArrowRecordsReader(pa.table({"value": list(values), **columns}))
    return chunk


def append_all(bench: Bench, chunk: Any, partition: int = 0, picked: Any = None) -> list[int]:
    """Every row; how many went into each batch."""
    stop = len(chunk) if picked is None else len(picked)
    start, counts = 0, []
    while start < stop:
        _, _, taken = bench.accumulator.append_rows(TOPIC, partition, chunk, picked, start, stop)
        start += taken
        counts += [taken] if taken else []
    return counts


def test_batches_of_tables_are_four_times_as_large() -> None:
    bench = Bench(batch_size=1000, linger_ms=0)

    counts = append_all(bench, rows(*[b"x" * 90] * 100))

    assert 35 <= counts[0] <= 41
    assert all(batch.size <= 4000 for batch in bench.take())


def test_a_table_fits_into_a_request_whatever_the_batch_size() -> None:
    bench = Bench(batch_size=5000, record_size_max=8000)

    append_all(bench, rows(*[b"x" * 90] * 200))

    assert max(batch.size for batch in bench.take()) <= 8000 - 1024


def test_rows_and_records_share_a_batch_and_keep_their_order() -> None:
    bench = Bench(linger_ms=5)
    bench.send(b"first")
    append_all(bench, rows(b"second", b"third"))
    bench.send(b"fourth")
    bench.clock.advance(5)
    (batch,) = bench.take()
    batch.seal(Compression.NONE, None, is_transactional=False)
    assert batch.records is not None

    values = [each.value for each in RecordBatch(batch.records).records()]

    assert values == [b"first", b"second", b"third", b"fourth"]


def test_picked_rows_go_where_they_are_meant_to() -> None:
    bench = Bench(partitions=3, linger_ms=0)
    chunk = rows(b"a", b"b", b"c", b"d", partition=[0, 2, 0, 2])
    numbers, places = chunk.spread(0, 4, 3, True)
    for partition, start, stop in places:
        bench.accumulator.append_rows(TOPIC, partition, chunk, numbers, start, stop)

    assert {batch.partition: batch.record_count for batch in bench.take()} == {0: 2, 2: 2}


def test_rows_without_a_key_change_the_sticky_partition_with_the_batch() -> None:
    bench = Bench(partitions=20, batch_size=500, linger_ms=0)

    append_all(bench, rows(*[b"x" * 90] * 200), ANY_PARTITION)

    assert len({batch.partition for batch in bench.take()}) > 4


def test_memory_is_reserved_before_rows_take_it() -> None:
    bench = Bench(batch_size=32_000, buffer_memory=40_000, record_size_max=100_000)
    chunk = rows(*[b"x" * 1000] * 100)

    with pytest.raises(MemoryNotFree):
        append_all(bench, chunk)

    assert bench.accumulator.buffered_bytes <= 40_000
    assert sum(batch.record_count for batch in bench.take()) > 20


def test_a_row_that_no_request_can_carry_is_refused() -> None:
    bench = Bench(record_size_max=2000)

    with pytest.raises(MessageTooLarge, match="max_request_size"):
        append_all(bench, rows(b"x" * 3000))
    assert bench.accumulator.buffered_bytes == 0


def test_rows_before_a_wrong_one_are_sent() -> None:
    bench = Bench(linger_ms=0)
    headers = pa.array(
        [[], [("a", b"1")], [None]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    chunk = rows(b"a", b"b", b"c", headers=headers)

    with pytest.raises(InvalidArgument):
        append_all(bench, chunk)
    (batch,) = bench.take()
    assert batch.record_count == 2
    with pytest.raises(InvalidArgument):
        bench.accumulator.append_rows(TOPIC, 0, chunk, None, 2, 3)
    assert bench.accumulator.incomplete_count == 1


def test_a_closed_accumulator_takes_no_rows() -> None:
    bench = Bench()
    bench.accumulator.close(ClientClosed("over"))

    with pytest.raises(ClientClosed):
        append_all(bench, rows(b"a"))
