"""What keeps the compiled kernel inside its memory: views, claims, changes, and no memory left."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream import _accel
from millstream.errors import CorruptMessage

if not _accel.COMPILED:
    pytest.skip("the compiled kernel is not built (make build)", allow_module_level=True)

from millstream._accel.arrow.records import ArrowChunk, ArrowRecords, ArrowRecordsBuilder
from millstream._accel.codec.crc32c import INSTRUCTIONS, crc32c, crc32c_portable
from millstream._accel.codec.record_codec import BatchWriter, Record, decode_records, scan_records

ROOT = Path(__file__).resolve().parents[3]
IS_ALIVE = r"the batch cannot change while a view of body\(\) is alive"


def writer_of(count: int) -> BatchWriter:
    writer = BatchWriter(capacity=0)
    writer.extend([(i, b"key", b"value", (("h", b"x"),)) for i in range(count)])
    return writer


@pytest.mark.parametrize(
    "change",
    [
        lambda writer: writer.append(0, None, None),
        lambda writer: writer.extend([(0, None, None)]),
        lambda writer: writer.append_raw(b"\x0c\0\0\0\x01\x01\0", 9, 0),
        lambda writer: writer.clear(),
        lambda writer: writer.__init__(),
    ],
    ids=["append", "extend", "append_raw", "clear", "__init__"],
)
def test_a_batch_cannot_change_under_a_view(change: Any) -> None:
    writer = writer_of(2)
    view = writer.body()
    part = view[3:7]
    before = bytes(view)

    with pytest.raises(BufferError, match=IS_ALIVE):
        change(writer)
    view.release()
    with pytest.raises(BufferError, match=IS_ALIVE):
        change(writer)

    assert before[3:7] == bytes(part)
    part.release()
    change(writer)
    assert writer.record_count != 2


def test_a_view_keeps_the_batch_alive_and_cannot_write() -> None:
    view = writer_of(3).body()
    gc.collect()

    assert len(decode_records(view, 3, 0, 0)) == 3
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_sealing_is_allowed_under_a_view() -> None:
    writer = writer_of(2)
    view = writer.body()

    assert writer.seal()[61:] == bytes(view)


def test_an_empty_batch_has_an_empty_view() -> None:
    writer = BatchWriter()

    assert bytes(writer.body()) == b""
    assert writer.append_raw(b"", 0, 0) == 61


def test_a_batch_grows_from_nothing() -> None:
    writer = BatchWriter(capacity=-5)
    for size in (0, 1, 100, 10_000, 100_000):
        writer.append(0, b"k" * size, b"v" * size)

    assert [len(record.value or b"") for record in decode_records(writer.body(), 5, 0, 0)] == [
        0,
        1,
        100,
        10_000,
        100_000,
    ]


@pytest.mark.parametrize("count", [2**31 - 1, 2**62])
def test_a_claimed_count_takes_no_memory(count: int) -> None:
    body = bytes(writer_of(1).body())

    for read in (
        lambda: decode_records(body, count, 0, 0),
        lambda: scan_records(body, count),
        lambda: ArrowRecordsBuilder().append(body, count, 0, 0),
    ):
        with pytest.raises(CorruptMessage, match=f"record 1, byte {len(body)}: cut off in the"):
            read()


def test_a_claimed_header_count_takes_no_memory() -> None:
    claims_many = b"\x1a\0\0\0\x01\x01\xfe\xff\xff\xff\x0f\0\0\0"

    for read in (
        lambda: decode_records(claims_many, 1, 0, 0),
        lambda: ArrowRecordsBuilder().append(claims_many, 1, 0, 0),
    ):
        with pytest.raises(CorruptMessage, match="the header count is 2147483647, with 3 bytes"):
            read()


def test_every_cut_of_a_body_is_noticed() -> None:
    body = bytes(writer_of(2).body())

    for end in range(len(body)):
        # A copy of its own size, so that a tool for memory errors sees the slightest over-read.
        cut = bytes(body[:end])
        with pytest.raises(CorruptMessage):
            decode_records(cut, 2, 0, 0)
        with pytest.raises(CorruptMessage):
            scan_records(cut, 2)
        with pytest.raises(CorruptMessage):
            ArrowRecordsBuilder().append(cut, 2, 0, 0)


def test_values_that_lend_their_bytes_get_them_back() -> None:
    key, value = bytearray(b"key"), bytearray(b"value")
    writer = BatchWriter()
    writer.append(0, key, memoryview(value))
    with pytest.raises(TypeError):
        writer.append(0, key, 5)  # type: ignore[arg-type]  # the error is the point
    with pytest.raises(OverflowError):
        writer.append(0, key, value, offset_delta=-1)

    key += b"longer"  # BufferError if a view of it were still held
    value += b"longer"

    [record] = decode_records(writer.body(), 1, 0, 0)
    assert (record.key, record.value) == (b"key", b"value")


def test_reading_does_not_leak() -> None:
    writer = BatchWriter()
    writer.extend([(i, b"key", b"value") for i in range(20)])
    body = bytes(writer.body())
    gc.collect()
    references = sys.getrefcount(body)
    no_headers = sys.getrefcount(())

    for _ in range(200):
        decode_records(body, 20, 0, 0)
        with pytest.raises(CorruptMessage):
            decode_records(body[:-1], 20, 0, 0)

    assert sys.getrefcount(body) == references
    # A reference left behind by each record would be 4,000 at least; others come and go.
    assert sys.getrefcount(()) - no_headers < 2_000


def test_records_do_not_burden_the_garbage_collector() -> None:
    record = Record(0, 0, b"k", b"v")

    assert not gc.is_tracked(record)


def test_parts_of_others_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"come from ArrowRecordsBuilder.finish\(\)"):
        ArrowRecords()
    with pytest.raises(TypeError, match="come from an ArrowRecordsReader"):
        ArrowChunk()


def test_parts_made_by_force_are_empty_and_harmless() -> None:
    records = ArrowRecords.__new__(ArrowRecords)
    chunk = ArrowChunk.__new__(ArrowChunk)

    for use in (records.__len__, records.__arrow_c_array__, records.__arrow_c_stream__):
        with pytest.raises(TypeError, match="come from ArrowRecordsBuilder"):
            use()
    assert len(chunk) == 0
    assert chunk.partitions() is None


def test_a_seed_that_is_no_number_is_refused() -> None:
    for checksum in (crc32c, crc32c_portable):
        with pytest.raises(TypeError):
            checksum(b"", "seed")  # type: ignore[arg-type]  # the error is the point
        assert checksum(b"", -1) == checksum(b"", 0xFFFFFFFF) == 0xFFFFFFFF


@pytest.mark.parametrize(
    "size", [*range(40), 767, 768, 769, *range(1023, 1300, 17), 12_287, 12_288, 12_300, 200_001]
)
def test_every_way_to_a_checksum_gives_the_same(size: int) -> None:
    data = bytes(i * 31 % 251 for i in range(size))
    seed = crc32c(b"before")

    assert crc32c(data, seed) == crc32c_portable(data, seed)
    assert crc32c(memoryview(data)[3:]) == crc32c_portable(data[3:])
    assert INSTRUCTIONS in ("vpclmulqdq", "sse4.2", "armv8", "portable")


def test_running_out_of_memory_is_a_memory_error_and_changes_nothing() -> None:
    """In a process of its own: a failing allocation also ends the measuring of coverage."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")

    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.accel.out_of_memory"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
