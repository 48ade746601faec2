"""A client's batch on its way into a log: checked and numbered where it lies.

The log's express lane calls both for every ordinary append. A batch that is not ordinary, or not
right, is not judged here: None sends it to `storage.validator`, which knows every rule and error.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
)
from millstream.records.plain.crc32c import crc32c

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_CODEC_MAX: Final = 4


class ClientBatch(NamedTuple):
    """What a log needs to know of a batch that it may append as it is."""

    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def inspect_client_batch(
    records: ReadableBuffer, size_max: int, timestamp_max: int
) -> tuple[int, int, int, int, int] | None:
    """The fields of `ClientBatch`, if `records` is one intact batch that any topic may take.

    That is: writable, at most `size_max` bytes, of the format of today, with base offset 0, a
    right checksum, a known codec and no other attribute, counts that agree, a newest timestamp
    neither before the first nor after `timestamp_max`, and a sequence if there is a producer id.
    """
    view = memoryview(records)
    if view.readonly or not HEADER_SIZE <= len(view) <= size_max:
        return None
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(view)
    if (
        base_offset != 0
        or length != len(view) - LOG_OVERHEAD
        or magic != MAGIC
        or not 0 <= attributes <= _CODEC_MAX
        or not 0 < record_count == last_offset_delta + 1
        or not base_timestamp <= max_timestamp <= timestamp_max
        or producer_id < NO_PRODUCER_ID
        or (producer_id != NO_PRODUCER_ID and base_sequence < 0)
        or crc != crc32c(view[ATTRIBUTES_AT:])
    ):
        return None
    return last_offset_delta, max_timestamp, producer_id, producer_epoch, base_sequence


def number_batch(records: ReadableBuffer, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at the beginning of a writable buffer its place in a log."""
    _INT64.pack_into(records, BASE_OFFSET_AT, base_offset)
    _INT32.pack_into(records, LEADER_EPOCH_AT, leader_epoch)
