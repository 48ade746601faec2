"""`fetched_batches`: what a fetch brought of a partition, ready to be read by an application.

Consumers call it for each partition of each answer. It gives the kernel's `FetchedBatches` what
that does not know: how to decompress, and how to read the formats before v2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.records.compression import Compression, decompress
from millstream.records.kernel import BatchWriter, ConsumerRecord, FetchedBatches
from millstream.records.layout import NO_TIMESTAMP, TimestampType
from millstream.records.legacy import LegacyBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types import Headers, ReadableBuffer

__all__ = ["ConsumerRecord", "FetchedBatches", "fetched_batches"]


def fetched_batches(
    data: ReadableBuffer,
    topic: str,
    partition: int,
    position: int,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] | None = None,
    key_deserializer: Callable[[str, bytes, Headers], Any] | None = None,
    value_deserializer: Callable[[str, bytes, Headers], Any] | None = None,
) -> FetchedBatches:
    """The batches in `data` from `position` on; CorruptMessage if it does not begin with one.

    `aborted` are (producer id, first offset) of the transactions to leave out.
    """
    return FetchedBatches(
        data,
        topic,
        partition,
        position,
        decompress=decompress_body,
        read_legacy=rewrite_legacy,
        check_crc=check_crc,
        aborted=aborted,
        key_deserializer=key_deserializer,
        value_deserializer=value_deserializer,
    )


def decompress_body(codec: int, view: memoryview) -> ReadableBuffer:
    """The records section of a batch, by the codec's number in the attributes."""
    return decompress(Compression.of_attributes(codec), view)


def rewrite_legacy(view: memoryview, check_crc: bool) -> tuple[bytes, int, int, int, int | None]:
    """Old messages are rare: they are written anew in the form that the kernel knows."""
    message = LegacyBatch(view)
    if check_crc:
        message.check_crc()
    records = message.records()
    base_offset = records[0].offset if records else 0
    writer = BatchWriter()
    for record in records:
        offset_delta = record.offset - base_offset
        writer.append(record.timestamp, record.key, record.value, (), offset_delta)
    is_stamped = message.timestamp_type is TimestampType.LOG_APPEND_TIME
    return (
        bytes(writer.body()),
        len(records),
        base_offset,
        writer.base_timestamp if records else NO_TIMESTAMP,
        message.max_timestamp if is_stamped else None,
    )
