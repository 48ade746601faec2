"""What Millstream does today, shown in a few seconds: `make demo`.

Writes sensor readings as record batches with every codec, reads them back, and measures the
compiled kernel beside its plain-Python twin. It needs no broker and no network.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

from millstream import __version__, _accel
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.records import Compression, RecordBatch, RecordBatchBuilder
from millstream.records.arrow import arrow_to_batches, records_to_arrow
from millstream.records.plain import record_codec as plain

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_COUNT = 5_000
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
    print(
        f"\n{len(rows):,} sensor readings as one record batch, the bytes Kafka stores and sends:\n"
    )
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
    """Both codecs side by side."""
    print("\nCPU time per record:\n")
    print(f"  {'':15} {'encode':>9} {'decode':>9}")
    for name, codec in codecs():
        encode_ns, decode_ns = measure(codec, rows)
        print(f"  {name:15} {encode_ns:>6.0f} ns {decode_ns:>6.0f} ns")


def codecs() -> list[tuple[str, Any]]:
    """The codecs that this installation has."""
    if not _accel.COMPILED:
        return [("plain Python", plain)]
    from millstream._accel import record_codec as compiled

    return [("compiled kernel", compiled), ("plain Python", plain)]


def show_arrow(rows: list[Row]) -> None:
    """The same batch as Arrow columns and back, without an object per record."""
    builder = RecordBatchBuilder()
    builder.extend(rows)
    data = builder.build()
    out_ns = cpu_ns(lambda: records_to_arrow(data)) / len(rows)
    table = records_to_arrow(data)
    back_ns = cpu_ns(lambda: list(arrow_to_batches(table))) / len(rows)
    print(f"  {'to Arrow':15} {out_ns:>6.0f} ns   from Arrow {back_ns:>6.0f} ns")


def show_message() -> None:
    """One request in two versions, as a broker would receive it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="readings")])
    print("\nAnd the words to ask any Kafka broker about a topic, in two of 14 versions:\n")
    for version in (1, 12):
        encoded = request.encode(version)
        assert MetadataRequest.decode(encoded, version) == request
        print(f"  Metadata v{version:<2} {encoded.hex()}")


def main() -> None:
    """Show everything, in order."""
    kernel = "compiled" if _accel.COMPILED else "plain Python"
    print(f"Millstream {__version__}, kernel: {kernel}")
    rows = sensor_readings(RECORD_COUNT)
    show_codecs(rows)
    show_speed(rows)
    show_arrow(rows)
    show_message()
    print("\nNext: README.md has the same as code to paste; `make test` runs every check.")


if __name__ == "__main__":
    main()
