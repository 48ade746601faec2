"""Walks the batches of a segment file: their heads only, or whole and verified.

`LogSegment` finds offsets and timestamps with `scan_heads`, which reads a few KiB whatever the
batches weigh; recovery and the cleaner use `scan_batches`, which reads everything once, in large
pieces, and ends quietly where the file ends within a batch. Nothing here changes a file.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import CorruptMessage
from millstream.records.batch import RecordBatch
from millstream.records.layout import (
    LENGTH_AT,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
)
from millstream.records.legacy import LegacyBatch
from millstream.storage.log.log_state import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.filesystem import File

_logger = logging.getLogger(__name__)

HEAD_WINDOW_BYTES: Final = 4096
"""One read of heads: about what lies between two index entries."""

BATCH_WINDOW_BYTES: Final = 1 << 20
"""One read of whole batches; a larger batch gets a larger read."""

# Base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max
# timestamp. In the old formats the timestamp is behind the attributes, in other places.
_HEAD = Struct(">qiibIhiqq")
_GLANCE = Struct(">qi4xb6xi")  # Base offset, length, magic, last offset delta.
_LEGACY_TIMESTAMP = Struct(">q")
_LEGACY_TIMESTAMP_AT: Final = 18
_LENGTH = Struct(">i")


class BatchHead(NamedTuple):
    """Where a batch is and what its header says; nothing of it is verified."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    magic: int

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.size


class BatchAt(NamedTuple):
    """A whole batch and where it is."""

    position: int
    batch: RecordBatch | LegacyBatch


def scan_heads(file: File, position: int, end: int) -> Iterator[BatchHead]:
    """The heads of the batches from a position on; the last one ends exactly at `end`.

    Anything else raises CorruptMessage, after the heads before it.
    """
    window = b""
    window_at = position
    while position < end:
        start = position - window_at
        if start + _HEAD.size > len(window) and window_at + len(window) < end:
            window = file.pread(min(HEAD_WINDOW_BYTES, end - position), position)
            window_at, start = position, 0
        if len(window) - start <= MAGIC_AT:
            raise CorruptMessage(f"{file.path}, byte {position}: too few bytes for a batch")
        head = _read_head(window, start, position, file.path)
        if head.end > end:
            raise CorruptMessage(
                f"{file.path}, byte {position}: a batch of {head.size} bytes goes beyond the "
                f"end at {end}"
            )
        yield head
        position = head.end


def find_head(
    file: File, position: int, end: int, offset: int, hint: tuple[int, int] | None = None
) -> BatchHead | None:
    """The first batch from a position on that ends at or after an offset.

    The same as a search through `scan_heads`, without a value for each batch passed over. With a
    hint there is a batch at the position that begins within these offsets, or CorruptMessage.
    """
    window = b""
    start = 0
    unpack = _GLANCE.unpack_from
    while position < end:
        if start + _HEAD.size > len(window):
            window = file.pread(min(HEAD_WINDOW_BYTES, end - position), position)
            start = 0
            if len(window) < _HEAD.size:
                break
        base_offset, length, magic, delta = unpack(window, start)
        size = LOG_OVERHEAD + length
        if magic != MAGIC or length < LENGTH_MIN or delta < 0 or position + size > end:
            break
        if hint is not None:
            _check_hint(hint, base_offset, position, file.path)
            hint = None
        if base_offset + delta >= offset:
            return _read_head(window, start, position, file.path)
        start += size
        position += size
    # At the end there is nothing; at anything unusual the careful way decides.
    for head in scan_heads(file, position, end):
        if hint is not None:
            _check_hint(hint, head.base_offset, position, file.path)
            hint = None
        if head.last_offset >= offset:
            return head
    if hint is not None:
        raise CorruptMessage(f"{file.path}, byte {position}: no batch where an index has one")
    return None


def head_at(file: File, position: int, end: int) -> BatchHead | None:
    """The head of the batch at a position; None if what is there is anything unusual."""
    window = file.pread(_HEAD.size, position)
    if len(window) < _HEAD.size:
        return None
    base_offset, length, _, magic, _, _, delta, _, timestamp = _HEAD.unpack(window)
    size = LOG_OVERHEAD + length
    if magic != MAGIC or length < LENGTH_MIN or delta < 0 or position + size > end:
        return None
    return BatchHead(position, size, base_offset, base_offset + delta, timestamp, magic)


def _check_hint(hint: tuple[int, int], base_offset: int, position: int, path: str) -> None:
    if not hint[0] <= base_offset <= hint[1]:
        raise CorruptMessage(
            f"{path}, byte {position}: no batch at {hint[0]} to {hint[1]}, where an index has one"
        )


def scan_batches(
    file: File, position: int, end: int, window_bytes: int = BATCH_WINDOW_BYTES
) -> Iterator[BatchAt]:
    """The whole batches from a position on; their checksums are for the caller to check.

    Bytes that cannot be a batch raise CorruptMessage.
    """
    buffer = bytearray(min(window_bytes, max(end - position, 0)))
    filled = start = 0
    while end - position > MAGIC_AT:
        needed = _needed_bytes(buffer, start, filled, position, file.path)
        if needed > end - position:
            return
        if needed > filled - start:
            # A new one, because somebody may still hold a batch of the old.
            buffer = bytearray(min(max(needed, window_bytes), end - position))
            filled, start = file.pread_into(buffer, position), 0
            if filled < needed:
                return
            continue
        is_current = buffer[start + MAGIC_AT] == MAGIC
        view = memoryview(buffer)[start : start + needed].toreadonly()
        yield BatchAt(position, RecordBatch(view) if is_current else LegacyBatch(view))
        start += needed
        position += needed


def scan_good_batches(
    file: File, end: int, base_offset: int, *, is_verifying: bool
) -> Iterator[BatchAt]:
    """The whole batches of a segment up to the first bad one, which is logged.

    Their offsets increase. With `is_verifying` their checksums are right too.
    """
    last_offset = base_offset - 1
    try:
        for position, batch in scan_batches(file, 0, end):
            if is_verifying:
                batch.check_crc()
            _check_order(file, position, base_offset, last_offset, batch.last_offset)
            last_offset = batch.last_offset
            yield BatchAt(position, batch)
    except CorruptMessage as error:
        _logger.warning("%s is good up to here: %s", file.path, error)


def last_offset_before(file: File, position: int, end: int) -> int:
    """The last offset of the batches from a position to an end, which they must fill."""
    last_offset = None
    for head in scan_heads(file, position, end):
        last_offset, position = head.last_offset, head.end
    if last_offset is None or position != end:
        raise CorruptMessage(f"{file.path}, byte {position}: there is no whole batch here")
    return last_offset


def read_batch(file: File, head: BatchHead) -> RecordBatch | LegacyBatch:
    """The whole batch of a head, with the right checksum, or CorruptMessage."""
    found = next(scan_batches(file, head.position, head.end), None)
    if found is None:
        raise CorruptMessage(f"{file.path}, byte {head.position}: there is no whole batch here")
    found.batch.check_crc()
    return found.batch


def _check_order(file: File, position: int, base_offset: int, previous: int, last: int) -> None:
    if not previous < last <= base_offset + RELATIVE_OFFSET_MAX:
        raise CorruptMessage(
            f"{file.path}, byte {position}: offset {last} cannot follow {previous}"
        )


def _needed_bytes(buffer: bytearray, start: int, filled: int, position: int, path: str) -> int:
    """How many bytes must be there: a header's worth to read the size, then the size."""
    if filled - start <= MAGIC_AT:
        return MAGIC_AT + 1
    (length,) = _LENGTH.unpack_from(buffer, start + LENGTH_AT)
    return _checked_size(length, buffer[start + MAGIC_AT], position, path)


def _read_head(window: bytes, start: int, position: int, path: str) -> BatchHead:
    if start + _HEAD.size > len(window):
        # Old messages may be shorter than the head of a new batch, at the end of the file.
        window, start = window[start:] + bytes(_HEAD.size), 0
    offset, length, _, magic, _, _, delta, _, timestamp = _HEAD.unpack_from(window, start)
    size = _checked_size(length, magic & 0xFF, position, path)
    if magic == MAGIC:
        if delta < 0:
            raise CorruptMessage(f"{path}, byte {position}: the last offset is before the first")
        return BatchHead(position, size, offset, offset + delta, timestamp, magic)
    if magic == 1:
        (timestamp,) = _LEGACY_TIMESTAMP.unpack_from(window, start + _LEGACY_TIMESTAMP_AT)
    else:
        timestamp = -1
    return BatchHead(position, size, offset, offset, timestamp, magic)


def _checked_size(length: int, magic: int, position: int, path: str) -> int:
    if magic > MAGIC:
        raise CorruptMessage(f"{path}, byte {position}: magic {magic} is not known")
    length_min = LENGTH_MIN if magic == MAGIC else LegacyBatch.LENGTH_MIN[magic]
    if length < length_min:
        raise CorruptMessage(f"{path}, byte {position}: a batch cannot have length {length}")
    return LOG_OVERHEAD + length
