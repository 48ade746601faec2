"""Writing the records section of a v2 batch, and its header, in plain Python.

The encoded pieces wait in a list and are joined once, when somebody wants the bytes. Producers,
the cleaner and tests append; compression happens between `body()` and `seal()`, not here.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from millstream.records.layout import (
    BATCH_SIZE_MAX,
    CHECKED_HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    UNCHECKED_HEADER,
)
from millstream.records.plain.crc32c import crc32c
from millstream.records.plain.fields import (
    INT64_MIN,
    NO_HEADERS,
    NULL,
    checked_size,
    checked_timestamp,
    encode_headers,
    fitting,
    integer,
    size_of,
)
from millstream.records.plain.varint import encode_varint
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import SupportsIndex

    from millstream.records.plain.fields import HeadersLike
    from millstream.types import Headers, ReadableBuffer

_OFFSET_DELTA_MAX = 2**31 - 1
_NO_MORE = object()
_ROW_SHAPE = "a row must be a tuple of (timestamp, key, value) or (timestamp, key, value, headers)"


class ArrowRows(Protocol):
    """What `extend_arrow` needs of a chunk of Arrow data."""

    def row(
        self, index: int
    ) -> tuple[int | None, ReadableBuffer | None, ReadableBuffer | None, Headers]:
        """(timestamp or None, key, value, headers) of one row."""
        ...


class BatchWriter:
    """Collects records and makes a batch of them. A failed append changes nothing."""

    __slots__ = (
        "_base_timestamp",
        "_fixed_base",
        "_last_offset_delta",
        "_max_timestamp",
        "_parts",
        "_record_count",
        "_size",
    )

    def __init__(
        self, capacity: int = 16 * 1024, base_timestamp: SupportsIndex | None = None
    ) -> None:
        """Timestamps are written relative to `base_timestamp`, else to the first record's.

        `capacity` is what the compiled version reserves; a list of pieces has nothing to reserve.
        """
        self._fixed_base: int | None = None
        if base_timestamp is not None:
            self._fixed_base = checked_timestamp(base_timestamp)
        self.clear()

    def clear(self) -> None:
        """Forget all records; the writer is as new."""
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE
        self._record_count = 0
        self._base_timestamp = NO_TIMESTAMP if self._fixed_base is None else self._fixed_base
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1

    @property
    def size(self) -> int:
        """Bytes of the batch so far, uncompressed, header included."""
        return self._size

    @property
    def record_count(self) -> int:
        """Records appended since the last clear."""
        return self._record_count

    @property
    def base_timestamp(self) -> int:
        """What timestamps are relative to: as given, or the first record's; -1 without either."""
        return self._base_timestamp

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp; -1 without records."""
        return self._max_timestamp

    @property
    def last_offset_delta(self) -> int:
        """The last record's offset relative to the batch's; -1 without records."""
        return self._last_offset_delta

    def append(
        self,
        timestamp: SupportsIndex,
        key: ReadableBuffer | None,
        value: ReadableBuffer | None,
        headers: HeadersLike = (),
        offset_delta: SupportsIndex | None = None,
    ) -> int:
        """Add one record and give the size so far. Offset deltas count up unless given."""
        self._append(timestamp, key, value, headers, offset_delta)
        return self._size

    def extend(
        self,
        records: Iterable[
            tuple[SupportsIndex, ReadableBuffer | None, ReadableBuffer | None]
            | tuple[SupportsIndex, ReadableBuffer | None, ReadableBuffer | None, HeadersLike]
        ],
    ) -> int:
        """Add (timestamp, key, value) or (timestamp, key, value, headers) rows; give the size.

        The rows before a faulty one stay in the batch.
        """
        rows = iter(records)
        while (row := self._extend_plainly(rows)) is not _NO_MORE:
            if not isinstance(row, tuple | list):
                raise TypeError(f"{_ROW_SHAPE}, not {type(row).__name__}")
            if not 3 <= len(row) <= 4:
                raise TypeError(f"{_ROW_SHAPE}, not {len(row)} items")
            self._append(*row)
        return self._size

    def _extend_plainly(self, rows: Iterator[object]) -> object:
        """Add rows as long as they are of the simplest kind, and give the first that is not.

        Simple are tuples of an int and two bytes or None, after the batch's first record. Other
        rows, good and bad, are for `_append`. Without the calls in between a row costs a third.
        """
        if not self._record_count:
            return next(rows, _NO_MORE)
        add = self._parts.append
        base, newest, size = self._base_timestamp, self._max_timestamp, self._size
        oldest_allowed = max(INT64_MIN, base + INT64_MIN)
        newest_allowed = min(INT64_MAX, base + INT64_MAX)
        first_delta = delta = self._last_offset_delta
        try:
            for row in islice(rows, _OFFSET_DELTA_MAX - delta):
                if type(row) is not tuple or len(row) != 3:
                    return row
                timestamp, key, value = row
                if type(timestamp) is not int or not oldest_allowed <= timestamp <= newest_allowed:
                    return row
                if type(key) is bytes:
                    start = encode_varint(len(key)) + key
                elif key is None:
                    start = NULL
                else:
                    return row
                if type(value) is bytes:
                    start += encode_varint(len(value))
                elif value is None:
                    start += NULL
                    value = b""
                else:
                    return row
                start = b"\0" + encode_varint(timestamp - base) + encode_varint(delta + 1) + start
                length = len(start) + len(value) + 1
                encoded_length = encode_varint(length)
                if size + len(encoded_length) + length > BATCH_SIZE_MAX:
                    return row
                add(encoded_length + start)
                add(value)
                add(NO_HEADERS)
                size += len(encoded_length) + length
                delta += 1
                if timestamp > newest:
                    newest = timestamp
            return next(rows, _NO_MORE)
        finally:
            self._record_count += delta - first_delta
            self._last_offset_delta, self._max_timestamp, self._size = delta, newest, size

    def extend_arrow(
        self, chunk: ArrowRows, start: int, stop: int, size_limit: int, default_timestamp: int
    ) -> int:
        """Add rows of an Arrow chunk while the size stays within the limit; give their number.

        The first row of an empty writer is added whatever its size, so that a caller gets on.
        """
        return self._extend_arrow(
            chunk, range(max(stop, 0)), start, stop, size_limit, default_timestamp
        )

    def extend_arrow_rows(
        self,
        chunk: ArrowRows,
        picked: Sequence[int],
        start: int,
        stop: int,
        size_limit: int,
        default_timestamp: int,
    ) -> int:
        """As `extend_arrow`, for the rows whose numbers are in `picked`, from start to stop."""
        if start < stop and (start < 0 or stop > len(picked)):
            raise IndexError(f"places {start} to {stop} of {len(picked)}")
        return self._extend_arrow(chunk, picked, start, stop, size_limit, default_timestamp)

    def _extend_arrow(
        self,
        chunk: ArrowRows,
        picked: Sequence[int],
        start: int,
        stop: int,
        size_limit: int,
        default_timestamp: int,
    ) -> int:
        for place in range(start, stop):
            row = place if place < 0 else picked[place]
            timestamp, key, value, headers = chunk.row(row)
            if timestamp is None:
                timestamp = default_timestamp
            limit = size_limit if self._record_count else BATCH_SIZE_MAX
            if not self._append(timestamp, key, value, headers, size_limit=limit):
                return place - start
        return max(stop - start, 0)

    def append_raw(
        self, record_bytes: ReadableBuffer, offset_delta: SupportsIndex, timestamp: SupportsIndex
    ) -> int:
        """Add one record that is encoded already, its length included, and give the size so far.

        For the cleaner: the bytes are trusted, and their timestamp delta is relative to the batch
        they come from, so that batch's base timestamp must go to `seal`.
        """
        time = checked_timestamp(timestamp)
        delta = self._checked_offset_delta(offset_delta)
        encoded = memoryview(record_bytes)
        size = checked_size(self._size + encoded.nbytes)
        self._parts.append(bytes(encoded))
        self._count_record(time, delta, size)
        return size

    def body(self) -> memoryview:
        """The encoded records, for a compressor; valid until the next append or clear."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return memoryview(self._parts[0] if self._parts else b"")

    def seal(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        attributes: int = 0,
        last_offset_delta: int | None = None,
        base_timestamp: int | None = None,
        max_timestamp: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        body: ReadableBuffer | None = None,
    ) -> bytes:
        """The finished batch with its checksum; `body` is the compressed form of the records.

        What is not given is taken from the records appended. The records stay in the writer.
        """
        if last_offset_delta is None:
            if not self._record_count:
                raise ValueError("an empty batch has no last offset: pass last_offset_delta")
            last_offset_delta = self._last_offset_delta
        records = self.body() if body is None else memoryview(body).cast("B")
        size = checked_size(HEADER_SIZE + len(records))
        checked = CHECKED_HEADER.pack(
            fitting("attributes", attributes, 16),
            fitting("last_offset_delta", last_offset_delta, 32),
            fitting(
                "base_timestamp",
                self._base_timestamp if base_timestamp is None else base_timestamp,
                64,
            ),
            fitting(
                "max_timestamp", self._max_timestamp if max_timestamp is None else max_timestamp, 64
            ),
            fitting("producer_id", producer_id, 64),
            fitting("producer_epoch", producer_epoch, 16),
            fitting("base_sequence", base_sequence, 32),
            self._record_count,
        )
        unchecked = UNCHECKED_HEADER.pack(
            fitting("base_offset", base_offset, 64),
            size - LOG_OVERHEAD,
            fitting("leader_epoch", leader_epoch, 32),
            MAGIC,
            crc32c(records, crc32c(checked)),
        )
        return b"".join((unchecked, checked, records))

    def _append(
        self,
        timestamp: SupportsIndex,
        key: ReadableBuffer | None,
        value: ReadableBuffer | None,
        headers: HeadersLike = (),
        offset_delta: SupportsIndex | None = None,
        size_limit: int = BATCH_SIZE_MAX,
    ) -> bool:
        """Add a record unless the batch would pass a limit below the format's own."""
        time = checked_timestamp(timestamp)
        timestamp_delta = self._timestamp_delta(time)
        key_size = len(key) if type(key) is bytes else size_of("key", key)
        value_size = len(value) if type(value) is bytes else size_of("value", value)
        encoded_headers = encode_headers(headers)
        delta = self._checked_offset_delta(offset_delta)

        start = (
            b"\0"
            + encode_varint(timestamp_delta)
            + encode_varint(delta)
            + encode_varint(-1 if key is None else key_size)
        )
        before_value = encode_varint(-1 if value is None else value_size)
        length = len(start) + key_size + len(before_value) + value_size + len(encoded_headers)
        encoded_length = encode_varint(length)
        size = checked_size(self._size + len(encoded_length) + length)
        if size > size_limit:
            return False

        # bytes() gives a bytes object back as it is, so only foreign buffers are copied here.
        self._parts += (
            encoded_length + start,
            b"" if key is None else bytes(key),
            before_value,
            b"" if value is None else bytes(value),
            encoded_headers,
        )
        self._count_record(time, delta, size)
        return True

    def _timestamp_delta(self, timestamp: int) -> int:
        if not self._record_count and self._fixed_base is None:
            return 0
        delta = timestamp - self._base_timestamp
        if not INT64_MIN <= delta <= INT64_MAX:
            raise OverflowError(
                f"timestamp {timestamp} is too far from the batch's first, {self._base_timestamp}"
            )
        return delta

    def _checked_offset_delta(self, offset_delta: SupportsIndex | None) -> int:
        previous = self._last_offset_delta
        delta = previous + 1 if offset_delta is None else integer("offset delta", offset_delta)
        if not 0 <= delta <= _OFFSET_DELTA_MAX:
            raise OverflowError(f"offset delta {delta} does not fit 31 bits")
        if delta <= previous:
            raise ValueError(f"offset delta {delta} must be above the previous, {previous}")
        return delta

    def _count_record(self, timestamp: int, offset_delta: int, size: int) -> None:
        if not self._record_count:
            self._max_timestamp = timestamp
            if self._fixed_base is None:
                self._base_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._last_offset_delta = offset_delta
        self._record_count += 1
        self._size = size
