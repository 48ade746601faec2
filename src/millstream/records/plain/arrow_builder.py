"""Records to Arrow in plain Python: the first half of the counterpart of `millstream._accel.arrow`.

Rows are collected in lists; `finish` makes the buffers, and an export fills in the structures of
`arrow_abi`. Clear rather than quick.
"""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream._accel.arrow.schema import COLUMNS, columns_by_number
from millstream.errors import InvalidArgument
from millstream.records.plain.arrow_abi import (
    NULLABLE,
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    GetLastError,
    GetNext,
    GetSchema,
    ReleaseArray,
    ReleaseSchema,
    ReleaseStream,
    for_good,
    held,
    keep_alive,
    let_go,
    pointers_to,
    release,
    to_capsule,
)
from millstream.records.plain.record import Record
from millstream.records.plain.record_codec import decode_records
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types import ReadableBuffer

_ALL = tuple(range(len(COLUMNS)))
_KEY, _VALUE, _HEADERS = range(3)

COLUMN_SIZE_MAX = 2**31 - 1
"""Arrow counts the bytes of a column, and the entries of lists, in 32 bits."""


class ArrowRecordsBuilder:
    """Collects the records of batches as Arrow columns."""

    __slots__ = ("_numbers", "_partitions", "_records", "_sizes")

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        """`columns` are those that are wanted, in their order: others are passed over."""
        self._numbers = _ALL if columns is None else tuple(columns_by_number(columns))
        self._clear()

    def _clear(self) -> None:
        self._records: list[Record] = []
        self._partitions = array("i")
        self._sizes = _Sizes()

    def append(
        self,
        body: ReadableBuffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None = None,
        partition: int = 0,
        from_offset: int = 0,
        to_offset: int = INT64_MAX,
    ) -> int:
        """Add the records of an uncompressed body, as `decode_records` reads them; the rows added.

        On an error nothing is added.
        """
        records = decode_records(
            body, count, base_offset, base_timestamp, append_timestamp, from_offset, to_offset
        )
        if self._numbers is not _ALL:
            records = [self._wanted(each) for each in records]
        sizes = self._sizes.with_records(records)
        partitions = array("i", [partition]) * len(records)
        self._sizes = sizes
        self._records += records
        self._partitions += partitions
        return len(records)

    def _wanted(self, record: Record) -> Record:
        """The record without what nobody will look at."""
        return Record(
            record.offset,
            record.timestamp,
            record.key if _KEY in self._numbers else None,
            record.value if _VALUE in self._numbers else None,
            record.headers if _HEADERS in self._numbers else (),
        )

    def expect(self, size: int) -> None:
        """About how many bytes come next: the compiled version makes room for them."""

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return len(self._records)

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers so far."""
        sizes = self._sizes
        return sizes.key + sizes.value + sizes.header_key + sizes.header_value

    def finish(self) -> ArrowRecords:
        """The rows as an Arrow object. The builder is empty again."""
        columns = _make_columns(self._records, self._partitions)
        finished = ArrowRecords(len(self._records), columns, self._numbers, self._numbers)
        self._clear()
        return finished


class _Sizes(NamedTuple):
    """Bytes (headers: entries) of each column whose size Arrow limits."""

    key: int = 0
    value: int = 0
    headers: int = 0
    header_key: int = 0
    header_value: int = 0

    def with_records(self, records: list[Record]) -> _Sizes:
        """The sizes after these records; OverflowError if a column cannot hold them."""
        headers = [header for record in records for header in record.headers]
        sizes = _Sizes(
            self.key + sum(len(record.key or b"") for record in records),
            self.value + sum(len(record.value or b"") for record in records),
            self.headers + len(headers),
            self.header_key + sum(len(_text(key)) for key, _ in headers),
            self.header_value + sum(len(value or b"") for _, value in headers),
        )
        for name, size in sizes._asdict().items():
            if size > COLUMN_SIZE_MAX:
                raise OverflowError(
                    f"column {name.replace('_', ' ')} would pass {COLUMN_SIZE_MAX} bytes: "
                    "call finish() and go on with the next"
                )
        return sizes


class ArrowRecords:
    """Records as one Arrow struct array, to be taken through the PyCapsule interface.

    Columns: key, value, headers, timestamp, offset, partition. It may be taken more than once;
    the takers share the buffers.
    """

    __slots__ = ("_columns", "_numbers", "_read", "_row_count")

    def __init__(
        self,
        row_count: int,
        columns: list[_Column],
        numbers: tuple[int, ...],
        read: tuple[int, ...],
    ) -> None:
        """For `ArrowRecordsBuilder.finish` only."""
        self._row_count = row_count
        self._columns = columns
        self._numbers = numbers
        self._read = read

    def __len__(self) -> int:
        return self._row_count

    def select(self, columns: Sequence[str]) -> ArrowRecords:
        """The same rows with these columns, in this order; nothing is copied."""
        numbers = tuple(columns_by_number(columns))
        for number in numbers:
            if number not in self._read:
                raise InvalidArgument(
                    f"column {COLUMNS[number]!r} was left out when the rows were read"
                )
        return ArrowRecords(self._row_count, self._columns, numbers, self._read)

    def with_views(self) -> ArrowRecords:
        """The same rows as they are: views would gain nothing here."""
        return self

    def __arrow_c_schema__(self) -> object:
        """The schema as an "arrow_schema" capsule."""
        return to_capsule(export_schema(self._numbers), b"arrow_schema")

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The schema and the rows as capsules. A request for other types is ignored."""
        rows = export_array(self)
        return self.__arrow_c_schema__(), to_capsule(rows, b"arrow_array")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an "arrow_array_stream" capsule of one array."""
        exported = _export_stream(self.root(), self._numbers)
        return to_capsule(exported, b"arrow_array_stream")

    def root(self) -> _Column:
        """The rows as one column of structs."""
        chosen = [self._columns[number] for number in self._numbers]
        return _Column(self._row_count, [None], children=chosen)


# ---- columns ----


class _Column(NamedTuple):
    """What an ArrowArray says, with Python's own objects for the buffers."""

    length: int
    buffers: list[Any]
    null_count: int = 0
    children: list[_Column] = []  # noqa: RUF012  # nobody appends to it


def _make_columns(records: list[Record], partitions: array[int]) -> list[_Column]:
    row_count = len(records)
    return [
        _strings([record.key for record in records]),
        _strings([record.value for record in records]),
        _header_lists(records),
        _Column(row_count, [None, _buffer(array("q", [r.timestamp for r in records]))]),
        _Column(row_count, [None, _buffer(array("q", [r.offset for r in records]))]),
        _Column(row_count, [None, _buffer(partitions)]),
    ]


def _header_lists(records: list[Record]) -> _Column:
    headers = [header for record in records for header in record.headers]
    entries = _Column(
        len(headers),
        [None],
        children=[
            _strings([_text(key) for key, _ in headers]),
            _strings([value for _, value in headers]),
        ],
    )
    ends = _running_sums(len(record.headers) for record in records)
    return _Column(len(records), [None, _buffer(ends)], children=[entries])


def _text(key: str) -> bytes:
    """A header's key as UTF-8. Arrow takes no other bytes, so they become U+FFFD."""
    raw = key.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace").encode()


def _strings(values: list[bytes | None]) -> _Column:
    null_count = values.count(None)
    validity = _bitmap(value is not None for value in values) if null_count else None
    ends = _running_sums(len(value or b"") for value in values)
    data = b"".join(value for value in values if value is not None)
    return _Column(
        len(values),
        [None if validity is None else _buffer(validity), _buffer(ends), _buffer(data)],
        null_count,
    )


def _running_sums(sizes: Any) -> array[int]:
    sums = array("i", [0])
    for size in sizes:
        sums.append(sums[-1] + size)
    return sums


def _bitmap(flags: Any) -> bytes:
    """One bit for each flag, the first in the lowest."""
    bits = 0
    count = 0
    for flag in flags:
        bits |= flag << count
        count += 1
    return bits.to_bytes(count // 8 + 1, "little")


def _buffer(values: bytes | array[int]) -> Any:
    """C memory with these bytes; never without an address."""
    raw = bytes(values)
    return (c_char * max(len(raw), 1)).from_buffer_copy(raw or b"\0")


# ---- exports ----


def export_array(records: ArrowRecords) -> ArrowArray:
    """The rows as a struct array."""
    return _export_array(records.root())


def _export_array(column: _Column) -> ArrowArray:
    children = [_export_array(child) for child in column.children]
    addresses = (c_void_p * len(column.buffers))(
        *(None if buffer is None else addressof(buffer) for buffer in column.buffers)
    )
    pointers = pointers_to(children, ArrowArray)
    exported = ArrowArray(
        length=column.length,
        null_count=column.null_count,
        n_buffers=len(column.buffers),
        n_children=len(children),
        buffers=addresses,
        children=pointers,
        release=_release_array,
    )
    exported.private_data = keep_alive((column.buffers, addresses, children, pointers))
    return exported


def export_schema(numbers: tuple[int, ...]) -> ArrowSchema:
    """The schema of these columns."""
    return _field(b"+s", b"", 0, *(_column_field(number) for number in numbers))


def _column_field(number: int) -> ArrowSchema:
    """In the order of COLUMNS."""
    match number:
        case 0:
            return _field(b"z", b"key", NULLABLE)
        case 1:
            return _field(b"z", b"value", NULLABLE)
        case 2:
            key, value = _field(b"u", b"key"), _field(b"z", b"value", NULLABLE)
            return _field(b"+l", b"headers", 0, _field(b"+s", b"item", 0, key, value))
        case 3:
            return _field(b"tsm:UTC", b"timestamp")
        case 4:
            return _field(b"l", b"offset")
        case _:
            return _field(b"i", b"partition")


def _field(kind: bytes, name: bytes, flags: int = 0, *children: ArrowSchema) -> ArrowSchema:
    pointers = pointers_to(list(children), ArrowSchema)
    exported = ArrowSchema(
        format=kind,
        name=name,
        flags=flags,
        n_children=len(children),
        children=pointers,
        release=_release_schema,
    )
    exported.private_data = keep_alive((kind, name, children, pointers))
    return exported


def _export_stream(root: _Column, numbers: tuple[int, ...]) -> ArrowArrayStream:
    exported = ArrowArrayStream(
        get_schema=_stream_schema,
        get_next=_stream_next,
        get_last_error=_stream_error,
        release=_release_stream,
    )
    exported.private_data = keep_alive(([root], numbers))
    return exported


def _on_release_array(array: Any) -> None:
    _release_with_children(array.contents, ReleaseArray())


_release_array = for_good(ReleaseArray(_on_release_array))


def _on_release_schema(schema: Any) -> None:
    _release_with_children(schema.contents, ReleaseSchema())


_release_schema = for_good(ReleaseSchema(_on_release_schema))


def _on_stream_schema(stream: Any, out: Any) -> int:
    _, numbers = held(stream.contents.private_data)
    out[0] = export_schema(numbers)
    return 0


_stream_schema = GetSchema(_on_stream_schema)


def _on_stream_next(stream: Any, out: Any) -> int:
    left, _ = held(stream.contents.private_data)
    out[0] = _export_array(left.pop()) if left else ArrowArray()
    return 0


_stream_next = GetNext(_on_stream_next)


def _on_stream_error(stream: Any) -> None:
    return None


_stream_error = GetLastError(_on_stream_error)


def _on_release_stream(stream: Any) -> None:
    let_go(stream.contents.private_data)
    stream.contents.release = ReleaseStream()


_release_stream = for_good(ReleaseStream(_on_release_stream))


def _release_with_children(structure: Any, nothing: Any) -> None:
    for index in range(structure.n_children):
        release(structure.children[index].contents)
    structure.release = nothing
    let_go(structure.private_data)
