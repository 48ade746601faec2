"""Rows of tables that find their partitions by their keys, in one pass."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.errors import ClientClosed
from millstream.records import partition_for_key
from millstream.records.arrow import ArrowRecordsReader
from millstream.records.batch import RecordBatch
from millstream.records.compression import Compression
from tests.unit.accel.sink_bench import TOPIC, SinkBench, compiled_accumulator

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

LENGTHS = (0, 1, 7, 8, 15, 16, 17, 63, 64, 100, 255, 256, 257, 900)


def rows(count: int, seed: int = 1) -> list[tuple[bytes, bytes]]:
    """Keys and values of all lengths that are copied in different ways."""
    random = Random(seed)
    return [
        (random.randbytes(random.choice(LENGTHS)), random.randbytes(random.choice(LENGTHS)))
        for _ in range(count)
    ]


def chunk_of(pairs: list[tuple[bytes, bytes]], kind: Any = None) -> Any:
    kind = kind or pa.binary()
    keys = pa.array([key for key, _ in pairs], pa.binary())
    values = pa.array([value for _, value in pairs], kind)
    (chunk,) = ArrowRecordsReader(pa.table({"key": keys, "value": values}))
    return chunk


def append_all(accumulator: Any, chunk: Any, start: int = 0) -> list[Any]:
    """Every row; the ranges that were told."""
    ranges = []
    while start < len(chunk):
        start, more, _ = accumulator.append_by_key(TOPIC, chunk, start, len(chunk))
        ranges += more
    return ranges


def append_counting(accumulator: Any, chunk: Any, sent: list[int]) -> None:
    """Every row, as long as there is memory; each call adds to `sent` how many."""
    while sum(sent) < len(chunk):
        start, ranges, _ = accumulator.append_by_key(TOPIC, chunk, sum(sent), len(chunk))
        sent.append(sum(count for _, _, count in ranges))
        assert start == sum(sent)


def sealed(batch: Any) -> RecordBatch:
    if batch.records is None:
        batch.seal(Compression.NONE, None, is_transactional=False)
    return RecordBatch(batch.records)


def test_rows_are_where_their_keys_belong_in_their_order_and_in_the_range_they_were_told() -> None:
    accumulator = compiled_accumulator(batch_size=8000, buffer_memory=8 << 20)
    pairs = rows(3000)

    ranges = append_all(accumulator, chunk_of(pairs))

    found: list[list[tuple[Any, Any]]] = [[] for _ in range(4)]
    for batch, first, count in ranges:
        records = sealed(batch).records()[first : first + count]
        assert len(records) == count
        found[batch.partition] += [(each.key, each.value) for each in records]
    for partition in range(4):
        wanted = [pair for pair in pairs if partition_for_key(pair[0], 4) == partition]
        assert found[partition] == wanted


def test_batches_that_are_full_are_told_and_are_not_too_large() -> None:
    accumulator: Any = compiled_accumulator(batch_size=2000, buffer_memory=8 << 20)
    chunk = chunk_of(rows(2000))

    full, start = [], 0
    while start < len(chunk):
        start, _, closed = accumulator.append_by_key(TOPIC, chunk, start, len(chunk))
        full += [closed] if closed is not None else []

    assert len(full) > 4
    assert all(batch.is_closed and batch.size <= 8000 for batch in full)


def test_what_a_slice_of_a_table_leaves_out_is_left_out() -> None:
    pairs = rows(50)
    table = pa.table({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
    (chunk,) = ArrowRecordsReader(table.slice(20, 10))
    accumulator = compiled_accumulator()

    ranges = append_all(accumulator, chunk)

    assert sum(count for _, _, count in ranges) == 10
    values = sorted(
        each.value or b"" for batch in {r[0] for r in ranges} for each in sealed(batch).records()
    )
    assert values == sorted(value for _, value in pairs[20:30])


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary(3)])
def test_other_layouts_go_another_way(kind: Any) -> None:
    chunk = chunk_of([(b"key", b"abc")], kind)

    assert compiled_accumulator().append_by_key(TOPIC, chunk, 0, 1) is None


def test_so_do_nulls_and_columns_that_say_more() -> None:
    accumulator = compiled_accumulator()
    for columns in (
        {"key": [b"a", None], "value": [b"1", b"2"]},
        {"key": [b"a", b"b"], "value": [None, b"2"]},
        {"key": [b"a", b"b"], "value": [b"1", b"2"], "partition": [0, 1]},
        {"key": [b"a", b"b"], "value": [b"1", b"2"], "timestamp": [1, 2]},
    ):
        (chunk,) = ArrowRecordsReader(pa.table(columns))
        assert accumulator.append_by_key(TOPIC, chunk, 0, 2) is None


def test_a_topic_that_is_not_known_and_an_accumulator_that_is_closed() -> None:
    accumulator = compiled_accumulator()
    chunk = chunk_of(rows(5))

    with pytest.raises(TopicNotKnown):
        accumulator.append_by_key("another", chunk, 0, 5)
    with pytest.raises(IndexError):
        accumulator.append_by_key(TOPIC, chunk, 0, 6)
    accumulator.close(ClientClosed("over"))
    with pytest.raises(ClientClosed):
        accumulator.append_by_key(TOPIC, chunk, 0, 5)


def test_rows_that_have_no_memory_are_not_counted_as_sent() -> None:
    accumulator = compiled_accumulator(batch_size=1000, buffer_memory=6000)
    pairs = [(b"%d" % number, b"x" * 200) for number in range(200)]
    chunk = chunk_of(pairs)
    sent: list[int] = []

    with pytest.raises(MemoryNotFree):
        append_counting(accumulator, chunk, sent)

    assert 0 < sum(sent) < len(chunk)
    queued = accumulator.incomplete()
    assert sum(batch.writer.record_count for batch in queued if batch.writer) == sum(sent)


@pytest.mark.parametrize("count", [1, 2, 1500])
def test_the_checksum_that_was_taken_on_the_way_is_that_of_the_batch(count: int) -> None:
    with SinkBench(batch_size=20_000, linger_ms=0, max_in_flight=16) as bench:
        pairs = [(b"same", bytes([number % 256]) * 40) for number in range(count)]
        partition = partition_for_key(b"same", 4)
        assert bench.grant(partition=partition)

        append_all(bench.accumulator, chunk_of(pairs))

        received: list[bytes | None] = []
        while len(received) < count:
            _, request = bench.receive()
            batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
            batch.check_crc()
            received += [each.value for each in batch.records()]
        assert received == [value for _, value in pairs]
