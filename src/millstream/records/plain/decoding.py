"""Reading the records section of a v2 batch in plain Python, as fast as that goes.

The loop only notices that something is wrong; what it is, `walking` finds out. Memory is bounded
by the body: no claimed length or count is believed before its bytes are seen. Nothing here knows
compression or batch headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.records.plain.record import Record
from millstream.records.plain.varint import BITS, INT32_BYTES, INT64_BYTES
from millstream.records.plain.walking import (
    check_nothing_follows,
    checked_bytes,
    corrupt_record,
    walk_record,
)
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types import Headers, ReadableBuffer


class _Malformed(Exception):
    """The bytes are no record. `walk_record` tells why."""


_INT64_MIN = -INT64_MAX - 1
_NULL = 1
"""The length -1 in zigzag form."""


def decode_records(
    body: ReadableBuffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
    from_offset: int = 0,
    to_offset: int = INT64_MAX,
) -> list[Record]:
    """The records of an uncompressed records section with from_offset <= offset < to_offset.

    `append_timestamp` is the batch's max timestamp when the broker stamped it (LogAppendTime):
    every record then has it. Bad bytes anywhere raise CorruptMessage.
    """
    found = iterate_records(body, count, base_offset, base_timestamp, append_timestamp)
    return [record for record in found if from_offset <= record.offset < to_offset]


def iterate_records(
    body: ReadableBuffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
) -> Iterator[Record]:
    """The records one by one, up to the first that is wrong."""
    data = checked_bytes(body, count)
    end = 0
    for index in range(count):
        start = end
        try:
            end, timestamp_delta, offset_delta, key, value, headers = _read_record(data, start)
        except (IndexError, _Malformed):
            walk_record(data, index, start)
            raise  # pragma: no cover (the walk refuses whatever the fast reader refuses)
        timestamp = append_timestamp
        if timestamp is None:
            timestamp = base_timestamp + timestamp_delta
            if not _INT64_MIN <= timestamp <= INT64_MAX:
                raise corrupt_record(index, start, "the timestamp does not fit 64 bits")
        offset = base_offset + offset_delta
        if offset > INT64_MAX:
            raise corrupt_record(index, start, "the offset does not fit 64 bits")
        yield Record(offset, timestamp, key, value, headers)
    check_nothing_follows(data, end, count)


def _read_record(
    data: bytes, position: int
) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    """(end, timestamp delta, offset delta, key, value, headers) of the record at `position`.

    Whatever is wrong raises IndexError or _Malformed.
    """
    if (number := data[position]) < 0x80:  # nearly all varints of a batch have a byte or two
        position += 1
    else:
        number, position = _read_long(data, position, INT32_BYTES)
    end = position + (number >> 1)
    if number & 1 or end > len(data):
        raise _Malformed
    position += 1  # the attributes, of which no bit has a meaning yet
    if (number := data[position]) < 0x80:
        position += 1
    else:
        number, position = _read_long(data, position, INT64_BYTES)
    timestamp_delta = (number >> 1) ^ -(number & 1)
    if (number := data[position]) < 0x80:
        position += 1
    else:
        number, position = _read_long(data, position, INT32_BYTES)
    if number & 1:
        raise _Malformed
    offset_delta = number >> 1
    key, position = _read_nullable(data, position)
    value, position = _read_nullable(data, position)
    headers: Headers = ()
    if data[position]:
        headers, position = _read_headers(data, position)
    else:
        position += 1
    # Positions only grow, so ending on the mark proves that no field passed it.
    if position != end:
        raise _Malformed
    return end, timestamp_delta, offset_delta, key, value, headers


def _read_long(data: bytes, position: int, bytes_max: int) -> tuple[int, int]:
    """A varint of more than one byte, still in its zigzag form, and the position after it."""
    if (high := data[position + 1]) < 0x80:
        return data[position] + (high << 7) - 0x80, position + 2
    number = shift = 0
    for byte in data[position : position + bytes_max]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _Malformed
    if number >> BITS[bytes_max]:
        raise _Malformed
    return number, position + shift // 7


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    if (number := data[position]) < 0x80:
        position += 1
    else:
        number, position = _read_long(data, position, INT32_BYTES)
    if not number & 1:
        end = position + (number >> 1)
        return data[position:end], end
    if number != _NULL:
        raise _Malformed
    return None, position


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    # A claimed count costs nothing: every header takes bytes, and those must be there.
    if (number := data[position]) < 0x80:
        position += 1
    else:
        number, position = _read_long(data, position, INT32_BYTES)
    if number & 1:
        raise _Malformed
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number >> 1):
        key, position = _read_nullable(data, position)
        if key is None:
            raise _Malformed
        value, position = _read_nullable(data, position)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
