"""Whole batches to and from Arrow tables.

Consumers turn fetched bytes into an Arrow object, producers turn any Arrow data into batches; Spark
and the columnar clients do nothing else. Neither way imports pyarrow: both speak the PyCapsule
interface. Which partition a row belongs to is the caller's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream._accel.arrow.schema import columns_by_number
from millstream.errors import InvalidArgument
from millstream.records.batch import RecordBatch, split_batches
from millstream.records.builder import RecordBatchBuilder
from millstream.records.compression import DECOMPRESSED_SIZE_MAX, Compression
from millstream.records.kernel import (
    ArrowChunk,
    ArrowRecords,
    ArrowRecordsBuilder,
    ArrowRecordsReader,
    BatchWriter,
)
from millstream.records.layout import HEADER_SIZE, LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.records.legacy import LegacyBatch
    from millstream.types import ReadableBuffer

__all__ = [
    "BATCH_BYTES",
    "ArrowChunk",
    "ArrowRecords",
    "ArrowRecordsBuilder",
    "ArrowRecordsReader",
    "append_batch",
    "arrow_to_batches",
    "columns_by_number",
    "records_to_arrow",
]

BATCH_BYTES = 1 << 20
"""How large batches become if the caller does not say: what a broker takes by default."""


def records_to_arrow(
    data: ReadableBuffer,
    partition: int = 0,
    *,
    from_offset: int = 0,
    to_offset: int = INT64_MAX,
    check_crc: bool = True,
    size_limit: int = DECOMPRESSED_SIZE_MAX,
) -> ArrowRecords:
    """The records of fetched batches with from_offset <= offset < to_offset, as Arrow columns.

    Control batches are left out, as is a batch that the fetch cut off. Corrupt bytes raise
    CorruptMessage.
    """
    builder = ArrowRecordsBuilder()
    for batch in split_batches(data):
        append_batch(
            builder,
            batch,
            partition,
            from_offset=from_offset,
            to_offset=to_offset,
            check_crc=check_crc,
            size_limit=size_limit,
        )
    return builder.finish()


def append_batch(
    builder: ArrowRecordsBuilder,
    batch: RecordBatch | LegacyBatch,
    partition: int = 0,
    *,
    from_offset: int = 0,
    to_offset: int = INT64_MAX,
    check_crc: bool = True,
    size_limit: int = DECOMPRESSED_SIZE_MAX,
) -> int:
    """Add one batch to a builder, for callers that collect several fetches; the rows added."""
    if check_crc:
        batch.check_crc()
    if not isinstance(batch, RecordBatch):
        return _append_legacy(builder, batch, partition, from_offset, to_offset, size_limit)
    if batch.is_control:
        return 0
    return builder.append(
        batch.body(size_limit),
        batch.record_count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None,
        partition,
        from_offset,
        to_offset,
    )


def _append_legacy(
    builder: ArrowRecordsBuilder,
    batch: LegacyBatch,
    partition: int,
    from_offset: int,
    to_offset: int,
    size_limit: int,
) -> int:
    """Old messages are rare: each goes through the form that the kernel knows."""
    records = batch.records(from_offset, to_offset, size_limit)
    for record in records:
        writer = BatchWriter()
        writer.append(record.timestamp, record.key, record.value)
        builder.append(writer.body(), 1, record.offset, record.timestamp, None, partition)
    return len(records)


def arrow_to_batches(
    data: object,
    *,
    batch_bytes: int = BATCH_BYTES,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    default_timestamp: int = NO_TIMESTAMP,
) -> Iterator[bytes]:
    """All rows of an object with `__arrow_c_stream__` or `__arrow_c_array__`, in order, as batches.

    A batch ends before it would pass `batch_bytes`, uncompressed; a single row larger than that
    has a batch of its own. Rows without a timestamp get `default_timestamp`. The schema is checked
    now, the rows as the batches are taken.
    """
    if batch_bytes <= HEADER_SIZE:
        raise InvalidArgument(f"batch_bytes is {batch_bytes}; a header alone has {HEADER_SIZE}")
    reader = ArrowRecordsReader(data)
    builder = RecordBatchBuilder(batch_bytes)

    def fill() -> Iterator[bytes]:
        for chunk in reader:
            row = 0
            while row < len(chunk):
                row += builder.extend_arrow(chunk, row, len(chunk), batch_bytes, default_timestamp)
                if row < len(chunk):
                    yield builder.build(compression=compression, level=level)
                    builder.clear()
        if builder.record_count:
            yield builder.build(compression=compression, level=level)

    return fill()
