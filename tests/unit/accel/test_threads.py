"""Threads on the compiled kernel: shared functions are safe, shared writers are refused."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if not _accel.COMPILED:
    pytest.skip("the compiled kernel is not built (make build)", allow_module_level=True)

from millstream._accel.arrow.records import ArrowRecordsBuilder, ArrowRecordsReader
from millstream._accel.codec.crc32c import crc32c, crc32c_portable
from millstream._accel.codec.record_codec import BatchWriter, decode_records

THREADS = 4
ROUNDS = 200
IN_USE = "in use: one thread, one call at a time"


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can, so that a race has its chance."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def hammer(work: Callable[[], Any], rounds: int = ROUNDS) -> list[Any]:
    """All results of many threads doing the same, starting together."""
    start = threading.Barrier(THREADS)

    def run() -> list[Any]:
        start.wait()
        return [work() for _ in range(rounds)]

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(run) for _ in range(THREADS)]
        return [result for future in futures for result in future.result()]


def test_one_buffer_gives_one_checksum_to_every_thread() -> None:
    data = bytes(range(256)) * 1024  # large enough to run without the GIL
    expected = crc32c_portable(data)

    assert set(hammer(lambda: crc32c(data))) == {expected}


def test_one_body_gives_the_same_records_to_every_thread() -> None:
    writer = BatchWriter()
    writer.extend([(i, b"k%d" % i, b"v" * i, {"h": b"x"}) for i in range(50)])
    body = bytearray(writer.body())
    expected = decode_records(body, 50, 0, 0)

    assert all(records == expected for records in hammer(lambda: decode_records(body, 50, 0, 0)))


def test_a_writer_shared_by_threads_stays_whole() -> None:
    """Each call works or is refused; none corrupts what the others wrote."""
    writer = BatchWriter(capacity=0)

    def work() -> bool:
        try:
            writer.append(0, b"key", b"value" * 10, [("h", b"x")])
        except RuntimeError:  # in use
            return False
        return True

    accepted = sum(hammer(work))

    assert writer.record_count == accepted
    records = decode_records(writer.body(), accepted, 0, 0)
    assert {record.value for record in records} == {b"value" * 10}


def test_a_builder_shared_by_threads_stays_whole() -> None:
    writer = BatchWriter()
    writer.extend([(i, b"k", b"v" * 100) for i in range(700)])
    body = bytes(writer.body())  # large enough to be read without the GIL
    builder = ArrowRecordsBuilder()

    def work() -> int:
        try:
            return builder.append(body, 700, 0, 0)
        except RuntimeError:  # in use
            return 0

    added = sum(hammer(work, rounds=50))

    assert builder.row_count == added > 0
    assert len(builder.finish()) == added


def test_a_writer_that_is_in_use_refuses_a_second_call() -> None:
    writer = BatchWriter()
    calls: list[Callable[[], Any]] = [
        writer.clear,
        writer.body,
        lambda: writer.seal(last_offset_delta=0),
        lambda: writer.append(0, None, None),
        lambda: writer.extend([]),
    ]

    def headers() -> Iterator[tuple[str, bytes]]:
        for call in calls:
            with pytest.raises(RuntimeError, match=IN_USE):
                call()
        yield "h", b"x"

    writer.append(0, None, None, headers())

    assert writer.record_count == 1


def test_a_reader_that_is_in_use_refuses_a_second_call() -> None:
    pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    readers: list[ArrowRecordsReader] = []

    def batches() -> Iterator[Any]:
        with pytest.raises(RuntimeError, match=IN_USE):
            next(readers[0])
        yield pa.record_batch({"value": [b"v"]})

    schema = pa.schema([("value", pa.binary())])
    readers.append(ArrowRecordsReader(pa.RecordBatchReader.from_batches(schema, batches())))

    assert len(next(readers[0])) == 1
