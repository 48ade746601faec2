"""The careful walk through encoded records: every field checked, in order, with words for faults.

The cleaner needs the raw bytes of records and walks them with `scan_records`, a leader asks
`inspect_records` before it takes a client's batch; `decode_records` is faster, and comes here only
to learn what is wrong with a record it could not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import CorruptMessage
from millstream.records.layout import NO_TIMESTAMP
from millstream.records.plain.varint import (
    BITS,
    INT32_BYTES,
    INT64_BYTES,
    VarintCutOff,
    VarintTooWide,
    read_varint,
)
from millstream.types import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

NAMED_MAX: Final = 100
"""How many faulty records `inspect_records` names: a batch may have a million of them."""


def inspect_records(
    body: ReadableBuffer, count: int, base_timestamp: int, oldest: int, newest: int
) -> tuple[int, bool, int, list[int], int, list[tuple[int, int]]]:
    """What a leader has to know of a client's records; CorruptMessage if one cannot be read.

    (largest timestamp, whether offsets count from 0 without holes, how many records have no key,
    the first of them, how many have a timestamp outside [oldest, newest] that is not -1, the first
    of them with their timestamps). At most 100 are named of each kind.
    """
    found = scan_records(body, count)
    largest = INT64_MIN
    keyless, untimely = [], []
    for index, (_, delta, key, _, _, _) in enumerate(found):
        timestamp = base_timestamp + delta
        held = min(max(timestamp, INT64_MIN), INT64_MAX)
        largest = max(largest, held)
        if held != timestamp or not (oldest <= held <= newest or held == NO_TIMESTAMP):
            untimely.append((index, held))
        if key is None:
            keyless.append(index)
    is_in_order = all(index == delta for index, (delta, *_) in enumerate(found))
    return (
        largest,
        is_in_order,
        len(keyless),
        keyless[:NAMED_MAX],
        len(untimely),
        untimely[:NAMED_MAX],
    )


def find_since(
    body: ReadableBuffer, count: int, base_timestamp: int, timestamp: int, from_delta: int
) -> tuple[int, int] | None:
    """(offset delta, timestamp) of the first record from an offset delta on that is not earlier.

    None if there is none.
    """
    data = checked_bytes(body, count)
    position = 0
    for index in range(count):
        offset_delta, delta, _, _, start, position = walk_record(data, index, position)
        found = base_timestamp + delta
        if not INT64_MIN <= found <= INT64_MAX:
            raise corrupt_record(index, start, "the timestamp does not fit 64 bits")
        if offset_delta >= from_delta and found >= timestamp:
            return offset_delta, found
    return None


def scan_records(
    body: ReadableBuffer, count: int
) -> list[tuple[int, int, bytes | None, bool, int, int]]:
    """What the cleaner must know of each record, in order, to copy some and drop others.

    Each is (offset delta, timestamp delta, key, has a value, start, end): `body[start:end]` is the
    encoded record with its length.
    """
    data = checked_bytes(body, count)
    found = []
    position = 0
    for index in range(count):
        scanned = walk_record(data, index, position)
        position = scanned[-1]
        found.append(scanned)
    check_nothing_follows(data, position, count)
    return found


def checked_bytes(body: ReadableBuffer, count: int) -> bytes:
    """The body as bytes, without a copy where it is bytes already."""
    if count < 0:
        raise CorruptMessage(f"the record count is {count}")
    return bytes(body)


def check_nothing_follows(data: bytes, position: int, count: int) -> None:
    """Complain about bytes after the last record."""
    if left_over := len(data) - position:
        raise CorruptMessage(f"byte {position}: {left_over} bytes left over after {count} records")


def corrupt_record(index: int, position: int, problem: str) -> CorruptMessage:
    """The error for what is wrong with one record."""
    return CorruptMessage(f"record {index}, byte {position}: {problem}")


def walk_record(
    data: bytes, index: int, start: int
) -> tuple[int, int, bytes | None, bool, int, int]:
    """Check the record at `start` and give what `scan_records` tells of it."""
    walk = _Walk(data, index, start)
    end = walk.enter_record()
    timestamp_delta = walk.number("timestamp delta", bytes_max=INT64_BYTES)
    offset_delta = walk.number("offset delta", minimum=0)
    key = walk.nullable("key length")
    value = walk.nullable("value length")
    walk.skip_headers()
    if left_over := end - walk.position:
        raise corrupt_record(index, walk.position, f"{left_over} bytes left over in the record")
    return (
        offset_delta,
        timestamp_delta,
        None if key is None else data[key],
        value is not None,
        start,
        end,
    )


class _Walk:
    """A position in one record's bytes that goes forward, field by field."""

    __slots__ = ("_data", "_end", "_index", "position")

    def __init__(self, data: bytes, index: int, position: int) -> None:
        self._data = data
        self._index = index
        self._end = len(data)
        self.position = position

    def enter_record(self) -> int:
        """Read the length and the attributes; from here on the record's end is the limit."""
        length = self._length("length", minimum=0)
        self._end = self.position + length
        if not length:
            raise corrupt_record(self._index, self.position, "cut off in the attributes")
        self.position += 1
        return self._end

    def number(
        self, field: str, *, bytes_max: int = INT32_BYTES, minimum: int | None = None
    ) -> int:
        """Read a varint, at least `minimum`."""
        at = self.position
        try:
            number, self.position = read_varint(self._data, at, self._end, bytes_max)
        except VarintCutOff:
            raise corrupt_record(self._index, at, f"cut off in the {field}") from None
        except VarintTooWide:
            problem = f"the {field} does not fit {BITS[bytes_max]} bits"
            raise corrupt_record(self._index, at, problem) from None
        if minimum is not None and number < minimum:
            raise corrupt_record(self._index, at, f"the {field} is {number}")
        return number

    def nullable(self, field: str) -> slice | None:
        """Pass a length and its bytes; say where the bytes are, None for null."""
        length = self._length(field, minimum=-1)
        if length < 0:
            return None
        start = self.position
        self.position += length
        return slice(start, self.position)

    def skip_headers(self) -> None:
        """Pass the header count and the headers."""
        at = self.position
        count = self.number("header count", minimum=0)
        # A header takes two bytes at least.
        self._check_room("header count", at, count, (self._end - self.position) // 2)
        for _ in range(count):
            length = self._length("header key length", minimum=0)
            self.position += length
            self.nullable("header value length")

    def _length(self, field: str, minimum: int) -> int:
        at = self.position
        length = self.number(field, minimum=minimum)
        self._check_room(field, at, length, self._end - self.position)
        return length

    def _check_room(self, field: str, at: int, number: int, number_max: int) -> None:
        if number > number_max:
            left = self._end - self.position
            problem = f"the {field} is {number}, with {left} bytes left"
            raise corrupt_record(self._index, at, problem)
