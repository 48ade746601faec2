"""Arrow to records in plain Python: the plain version of `millstream._accel.arrow.reader`.

Values are read from the addresses that the producer gave, one by one, after the array was checked
as arrow/input.c does. Which columns fit is decided in `millstream._accel.arrow.schema`, for both
versions. Clear rather than quick.
"""

from __future__ import annotations

from array import array
from ctypes import byref, c_int8, c_int16, c_int32, c_int64, c_uint8, string_at
from typing import TYPE_CHECKING, Any

from millstream._accel.arrow import schema as arrow_schema
from millstream._accel.arrow.schema import Layout
from millstream.records.plain.arrow_abi import (
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    release,
    take,
)
from millstream.records.plain.murmur2 import partition_for_key
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from typing import Self

    from millstream._accel.arrow.schema import HeaderLists, Node, RecordPlan, Strings
    from millstream.types import Headers

_INT64_MIN = -INT64_MAX - 1
_INT32_MAX = 2**31 - 1
_INTEGERS = {1: c_int8, 2: c_int16, 4: c_int32, 8: c_int64}
_VIEW_SIZE = 16
_VIEW_INLINE_MAX = 12


class ArrowRecordsReader:
    """Any Arrow data as chunks of rows, in order and once."""

    __slots__ = ("_array", "_plan", "_stream")

    _array: ArrowArray | None
    _stream: ArrowArrayStream | None

    def __init__(self, data: Any) -> None:
        self._array = self._stream = None
        if hasattr(data, "__arrow_c_stream__"):
            self._take_stream(data.__arrow_c_stream__())
        elif hasattr(data, "__arrow_c_array__"):
            self._take_array(*data.__arrow_c_array__())
        else:
            raise arrow_schema.not_arrow(data)

    def __del__(self) -> None:
        for structure in (self._array, self._stream):
            if structure is not None:
                release(structure)

    def _take_stream(self, capsule: object) -> None:
        self._stream = take(capsule, b"arrow_array_stream", ArrowArrayStream)
        schema = ArrowSchema()
        self._check(self._stream.get_schema(byref(self._stream), byref(schema)))
        if not schema.release:
            raise arrow_schema.unsound_schema()
        try:
            self._plan = arrow_schema.plan_records(_describe(schema))
        finally:
            release(schema)

    def _take_array(self, schema_capsule: object, array_capsule: object) -> None:
        schema = take(schema_capsule, b"arrow_schema", ArrowSchema)
        try:
            self._plan = arrow_schema.plan_records(_describe(schema))
        finally:
            release(schema)
        self._array = take(array_capsule, b"arrow_array", ArrowArray)

    def _check(self, code: int) -> None:
        if code:
            stream: Any = self._stream
            problem = stream.get_last_error(byref(stream))
            text = string_at(problem).decode("utf-8", "replace") if problem else ""
            raise arrow_schema.stream_failure(code, text)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowChunk:
        rows: Any
        if self._stream is None:
            rows, self._array = self._array, None
        else:
            rows = ArrowArray()
            self._check(self._stream.get_next(byref(self._stream), byref(rows)))
        if rows is None or not rows.release:
            raise StopIteration
        return ArrowChunk(rows, self._plan)


def _describe(schema: Any) -> Node:
    children = [_child(schema, index) for index in range(schema.n_children)]
    if schema.format is None or None in children:
        raise arrow_schema.unsound_schema()
    return arrow_schema.Node(
        (schema.name or b"").decode("utf-8", "replace"),
        schema.format.decode("utf-8", "replace"),
        bool(schema.dictionary),
        tuple(map(_describe, children)),
    )


class ArrowChunk:
    """Some rows of Arrow data, to be written to a batch. It owns the array it stands for."""

    __slots__ = ("_array", "_headers", "_key", "_partition", "_plan", "_timestamp", "_value")

    def __init__(self, rows: Any, plan: RecordPlan) -> None:
        """For `ArrowRecordsReader` only."""
        self._array = rows
        self._plan = plan
        itself = _Column(rows, Layout.FIXED, 0, 0, rows.length)
        self._key = _StringColumn(_child(rows, plan.key.child), plan.key, rows)
        self._value = _StringColumn(_child(rows, plan.value.child), plan.value, rows)
        self._timestamp = _Column(
            _child(rows, plan.timestamp.child), plan.timestamp.layout, 2, rows.offset, rows.length
        )
        self._partition = _Column(
            _child(rows, plan.partition.child), plan.partition.layout, 2, rows.offset, rows.length
        )
        self._headers = _HeaderColumn(_child(rows, plan.headers.child), plan.headers, rows)
        self._key.check("key")
        self._value.check("value")
        self._headers.check_all()
        for row in range(rows.length):
            if itself.is_null(row):
                raise arrow_schema.null_row(row)

    def __del__(self) -> None:
        release(self._array)

    def __len__(self) -> int:
        return int(self._array.length)

    @property
    def has_key(self) -> bool:
        """Whether there is a key column."""
        return self._plan.key.layout != Layout.ABSENT

    @property
    def has_headers(self) -> bool:
        """Whether there is a headers column."""
        return self._plan.headers.layout != Layout.ABSENT

    @property
    def has_timestamp(self) -> bool:
        """Whether there is a timestamp column."""
        return self._plan.timestamp.layout != Layout.ABSENT

    @property
    def has_partition(self) -> bool:
        """Whether there is a partition column."""
        return self._plan.partition.layout != Layout.ABSENT

    def partitions(self) -> memoryview | None:
        """The partition of each row, -1 where it is null; None without such a column."""
        if not self.has_partition:
            return None
        numbers = array("i")
        width = self._plan.partition.width
        for row in range(len(self)):
            number = -1
            if not self._partition.is_null(row):
                number = self._partition.number(_INTEGERS[width], row)
                if not 0 <= number <= _INT32_MAX:
                    raise arrow_schema.bad_partition(row, number)
            numbers.append(number)
        return memoryview(numbers.tobytes()).cast("i")

    def spread(
        self, start: int, stop: int, partition_count: int, uses_keys: bool
    ) -> tuple[memoryview, list[tuple[int, int, int]]]:
        """Rows start to stop by partition: their numbers, sorted, and how many each partition has.

        A row goes where its partition column says, else where the hash of its key does, else to
        partition -1: that is the caller's choice. Gives a view of the numbers and, by ascending
        partition, (partition, first place, place after the last) in it. Order within a partition
        is kept.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"rows {start} to {stop} of {len(self)}")
        if partition_count < 1:
            raise ValueError(f"partition count must be at least 1, not {partition_count}")
        rows_of: dict[int, list[int]] = {}
        for row in range(start, stop):
            partition = self._partition_of(row, partition_count, uses_keys)
            rows_of.setdefault(partition, []).append(row)
        numbers = array("i")
        places = []
        for partition in sorted(rows_of):
            places.append((partition, len(numbers), len(numbers) + len(rows_of[partition])))
            numbers.extend(rows_of[partition])
        return memoryview(numbers.tobytes()).cast("i"), places

    def _partition_of(self, row: int, partition_count: int, uses_keys: bool) -> int:
        if not self._partition.is_null(row):
            partition = self._partition.number(_INTEGERS[self._plan.partition.width], row)
            if not 0 <= partition < partition_count:
                raise arrow_schema.no_such_partition(row, partition, partition_count)
            return partition
        key = self._key.at(row) if uses_keys else None
        return -1 if key is None else partition_for_key(key, partition_count)

    def row(self, index: int) -> tuple[int | None, bytes | None, bytes | None, Headers]:
        """(timestamp or None, key, value, headers) of one row."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return (
            self._timestamp_at(index),
            self._key.at(index),
            self._value.at(index),
            self._headers.at(index),
        )

    def _timestamp_at(self, row: int) -> int | None:
        """Milliseconds, rounded down."""
        if self._timestamp.is_null(row):
            return None
        plan = self._plan.timestamp
        time = self._timestamp.number(c_int64, row) * plan.multiplier // plan.divisor
        if not _INT64_MIN <= time <= INT64_MAX:
            raise arrow_schema.timestamp_overflow(row)
        return time


def _child(parent: Any, index: int) -> Any:
    has_child = parent is not None and 0 <= index < parent.n_children and parent.children
    return parent.children[index].contents if has_child and parent.children[index] else None


class _Column:
    """The values of an array from `first` on, `count` of them."""

    __slots__ = ("_buffers", "_count", "_end", "_first", "_layout", "_validity")

    def __init__(
        self,
        source: Any,
        layout: Layout,
        buffers_wanted: int,
        first: int,
        count: int,
        width: int = _VIEW_SIZE,
    ) -> None:
        self._layout = layout
        self._count = count
        if layout <= Layout.NULLS:
            return
        if (
            source is None
            or source.offset < 0
            or source.length < 0
            or first + count > source.length
            or source.n_buffers < buffers_wanted
            or (source.n_buffers > 0 and not source.buffers)
            or (source.offset + source.length + 1) * max(width, _VIEW_SIZE) > INT64_MAX
        ):
            raise arrow_schema.unsound_array()
        self._first = source.offset + first
        self._end = source.offset + source.length
        self._buffers: list[int | None] = source.buffers[: max(0, source.n_buffers)]
        has_nulls = source.null_count != 0 and source.n_buffers > 0
        self._validity = self._buffers[0] if has_nulls else None
        if count and width and buffers_wanted > 1 and not self._buffers[1]:
            raise arrow_schema.unsound_array()

    def is_null(self, index: int) -> bool:
        """Whether a value is null; all are in a column that is not there."""
        if self._layout <= Layout.NULLS:
            return True
        if self._validity is None:
            return False
        at = self._first + index
        return not c_uint8.from_address(self._validity + at // 8).value >> at % 8 & 1

    def number(self, kind: Any, index: int) -> int:
        """A number of the second buffer, where offsets are as well."""
        buffer = self._buffers[1] or 0
        size = _INTEGERS_SIZE[kind]
        return int(kind.from_address(buffer + size * (self._first + index)).value)

    def offset(self, index: int) -> int:
        """Where a value of varying size starts, and the one before it ends."""
        return self.number(c_int32 if self._layout == Layout.OFFSETS_32 else c_int64, index)

    def check_offsets(self, name: str, bound: int) -> None:
        """Refuse offsets that fall, or lie outside of 0 to `bound`."""
        for index in range(self._count):
            if not 0 <= self.offset(index) <= self.offset(index + 1) <= bound:
                raise arrow_schema.unsound_value(name, index)


_INTEGERS_SIZE = {kind: size for size, kind in _INTEGERS.items()}


class _StringColumn(_Column):
    """Byte strings in any layout."""

    __slots__ = ("_width",)

    def __init__(self, source: Any, plan: Strings, parent: Any, count: int | None = None) -> None:
        wanted = 2 if plan.layout == Layout.FIXED else 3
        # Strings of no width need no buffer.
        width = plan.width if plan.layout == Layout.FIXED else _VIEW_SIZE
        rows = parent.length if count is None else count
        super().__init__(source, plan.layout, wanted, parent.offset, rows, width)
        self._width = plan.width
        if plan.layout == Layout.VIEWS and len(self._buffers) > wanted and not self._buffers[-1]:
            raise arrow_schema.unsound_array()

    def check(self, name: str) -> None:
        """Refuse a column with a string that leaves its data."""
        if not self._count or self._layout in {Layout.ABSENT, Layout.NULLS, Layout.FIXED}:
            return
        if self._layout == Layout.VIEWS:
            self._check_views(name)
        else:
            self.check_offsets(
                name, self.offset(self._end - self._first) if self._buffers[2] else 0
            )

    def _check_views(self, name: str) -> None:
        buffers = self._buffers[2:-1]
        for index in range(self._count):
            length, buffer, offset = self._view(index)
            if 0 <= length <= _VIEW_INLINE_MAX or self.is_null(index):
                continue
            if (
                min(length, offset, buffer) < 0
                or buffer >= len(buffers)
                or not buffers[buffer]
                or offset + length > self._view_buffer_size(buffer)
            ):
                raise arrow_schema.unsound_value(name, index)

    def at(self, index: int) -> bytes | None:
        """One string, None for null."""
        if self.is_null(index):
            return None
        if self._layout == Layout.VIEWS:
            return self._string_of_view(index)
        if self._layout == Layout.FIXED:
            start = (self._first + index) * self._width
            return self._slice(1, start, start + self._width)
        return self._slice(2, self.offset(index), self.offset(index + 1))

    def _slice(self, buffer: int, start: int, end: int) -> bytes:
        return string_at((self._buffers[buffer] or 0) + start, end - start) if end > start else b""

    def _view(self, index: int) -> tuple[int, int, int]:
        """Length, buffer and offset of a view."""
        start = _VIEW_SIZE * (self._first + index)
        length, _, buffer, offset = memoryview(self._slice(1, start, start + _VIEW_SIZE)).cast("i")
        return length, buffer, offset

    def _view_buffer_size(self, buffer: int) -> int:
        return int(c_int64.from_address((self._buffers[-1] or 0) + 8 * buffer).value)

    def _string_of_view(self, index: int) -> bytes:
        length, buffer, offset = self._view(index)
        if length > _VIEW_INLINE_MAX:
            return self._slice(2 + buffer, offset, offset + length)
        start = _VIEW_SIZE * (self._first + index) + 4
        return self._slice(1, start, start + length)


class _HeaderColumn(_Column):
    """Lists of headers."""

    __slots__ = ("_entries", "_entry_count", "_key", "_value")

    def __init__(self, lists: Any, plan: HeaderLists, parent: Any) -> None:
        super().__init__(lists, plan.layout, 2, parent.offset, parent.length)
        if plan.layout <= Layout.NULLS:
            return
        entries = _child(lists, 0)
        if lists.n_children != 1 or entries is None:
            raise arrow_schema.unsound_array()
        has_entries = plan.key.layout != Layout.ABSENT
        self._entries = _Column(entries, Layout.FIXED, 0, 0, 0)
        self._entry_count = entries.length if has_entries else 0
        self._key = _StringColumn(
            _child(entries, plan.key.child), plan.key, entries, self._entry_count
        )
        self._value = _StringColumn(
            _child(entries, plan.value.child), plan.value, entries, self._entry_count
        )

    def check_all(self) -> None:
        """Refuse lists that leave their entries, and strings of entries that leave their data."""
        if self._layout <= Layout.NULLS:
            return
        self.check_offsets("headers", self._entry_count)
        self._key.check("headers.key")
        self._value.check("headers.value")

    def at(self, row: int) -> Headers:
        """The headers of one row; none where the list is null."""
        if self.is_null(row):
            return ()
        entries = range(self.offset(row), self.offset(row + 1))
        return tuple(self._header(row, index) for index in entries)

    def _header(self, row: int, index: int) -> tuple[str, bytes | None]:
        if self._entries.is_null(index):
            raise arrow_schema.null_header(row)
        key = self._key.at(index)
        if key is None:
            raise arrow_schema.null_header_key(row)
        return key.decode("utf-8", "surrogateescape"), self._value.at(index)
