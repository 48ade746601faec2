"""The second act of `make demo`: what a broker moves and stores, and what it costs to make it.

Writes sensor readings as record batches with every codec, reads them back, and measures the
compiled kernel beside its plain-Python version. It needs no broker and no network.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

from millstream import _accel
from millstream.records import Compression, RecordBatch, RecordBatchBuilder
from millstream.records.arrow import arrow_to_batches, records_to_arrow
from millstream.records.plain import record_codec as plain

if TYPE_CHECKING:
    from collections.abc import Callable

NOW_MS = 1_700_000_000_000
ROUNDS = 7

Row = tuple[int, bytes, bytes]


def sensor_readings(count: int) -> list[Row]:
    """Readings of a hundred sensors, about 100 bytes each, the same at every run."""
    random = Random(7)
    return [
        (
            NOW_MS + i,
            b"sensor-%04d" % random.randrange(100),
            b'{"celsius": %.2f, "humidity": %.3f, "battery": %d, "station": "mill-%02d"}'
            % (random.gauss(20, 4), random.random(), random.randrange(100), random.randrange(20)),
        )
        for i in range(count)
    ]


def show_codecs(rows: list[Row]) -> None:
    """One batch per codec: its size, and proof that it reads back."""
    builder = RecordBatchBuilder()
    builder.extend(rows)
    plain_size = builder.size
    print(f"\n{len(rows):,} of them as one record batch, the bytes Kafka stores and sends:\n")
    for codec in Compression:
        batch = RecordBatch(builder.build(compression=codec))
        batch.check_crc()
        records = batch.records()
        assert [(r.timestamp, r.key, r.value) for r in records] == rows
        share = batch.size / plain_size
        print(f"  {codec.name.lower():7} {batch.size:>9,} bytes  {share:>5.0%}  read back, equal")


def cpu_ns(work: Callable[[], object]) -> float:
    """CPU nanoseconds of one call: the best of several, on a machine that others use too."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - started)
    return best


def measure(codec: Any, rows: list[Row]) -> tuple[float, float]:
    """Nanoseconds per record to encode and to decode with one of the two codecs."""
    writer = codec.BatchWriter()

    def encode() -> bytes:
        writer.clear()
        writer.extend(rows)
        sealed: bytes = writer.seal()
        return sealed

    body = bytes(encode()[61:])
    decode = lambda: codec.decode_records(body, len(rows), 0, NOW_MS)  # noqa: E731
    return cpu_ns(encode) / len(rows), cpu_ns(decode) / len(rows)


def show_speed(rows: list[Row]) -> None:
    """Both codecs side by side, and Arrow."""
    print("\nCPU time per record:\n")
    print(f"  {'':15} {'encode':>9} {'decode':>9}")
    for name, codec in codecs():
        encode_ns, decode_ns = measure(codec, rows)
        print(f"  {name:15} {encode_ns:>6.0f} ns {decode_ns:>6.0f} ns")
    from_arrow_ns, to_arrow_ns = measure_arrow(rows)
    print(f"  {'Arrow table':15} {from_arrow_ns:>6.0f} ns {to_arrow_ns:>6.0f} ns")


def codecs() -> list[tuple[str, Any]]:
    """The codecs that this installation has."""
    if not _accel.COMPILED:
        return [("plain Python", plain)]
    from millstream._accel.codec import record_codec as compiled

    return [("compiled kernel", compiled), ("plain Python", plain)]


def measure_arrow(rows: list[Row]) -> tuple[float, float]:
    """Nanoseconds per record from Arrow columns and to them, without an object per record."""
    builder = RecordBatchBuilder()
    builder.extend(rows)
    data = builder.build()
    table = records_to_arrow(data)
    from_ns = cpu_ns(lambda: list(arrow_to_batches(table)))
    to_ns = cpu_ns(lambda: records_to_arrow(data))
    return from_ns / len(rows), to_ns / len(rows)
