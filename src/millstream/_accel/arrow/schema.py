"""Which Arrow columns records are taken from: names, types, and what to say when they do not fit.

Both versions of the Arrow reader describe the schema they are given as `Node`s and follow the
`RecordPlan` they get back, so a schema is judged in one place. Nothing here touches memory.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = ("key", "value", "headers", "timestamp", "offset", "partition")
"""The columns of a record. `offset` may be there, so that what was read can be written back."""


class Node(NamedTuple):
    """One field of a schema, as the C data interface tells it."""

    name: str
    format: str
    is_dictionary: bool
    children: tuple[Node, ...]


class Layout(IntEnum):
    """How the values of a column lie in memory. The numbers are those of arrow/input.h."""

    ABSENT = 0
    NULLS = 1
    OFFSETS_32 = 2
    OFFSETS_64 = 3
    VIEWS = 4
    FIXED = 5


class Strings(NamedTuple):
    """Where byte strings are: which child, in which layout, how wide if all are."""

    child: int = -1
    layout: Layout = Layout.ABSENT
    width: int = 0


class Timestamps(NamedTuple):
    """Where times are: value * multiplier // divisor is in milliseconds."""

    child: int = -1
    layout: Layout = Layout.ABSENT
    multiplier: int = 1
    divisor: int = 1


class HeaderLists(NamedTuple):
    """Where headers are: the lists, and in their entries the keys and values."""

    child: int = -1
    layout: Layout = Layout.ABSENT
    key: Strings = Strings()
    value: Strings = Strings()


class RecordPlan(NamedTuple):
    """Where to find each part of a record."""

    key: Strings
    value: Strings
    headers: HeaderLists
    timestamp: Timestamps
    partition: Strings


_TEXT = {"u": Layout.OFFSETS_32, "U": Layout.OFFSETS_64, "vu": Layout.VIEWS}
_BYTES = {"z": Layout.OFFSETS_32, "Z": Layout.OFFSETS_64, "vz": Layout.VIEWS, **_TEXT}
_LISTS = {"+l": Layout.OFFSETS_32, "+L": Layout.OFFSETS_64, "+m": Layout.OFFSETS_32}
_UNITS = {"l": (1, 1), "tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000)}
_INTEGER_WIDTHS = {"c": 1, "s": 2, "i": 4, "l": 8}
_FIXED_SIZE_BINARY = "w:"
_WIDTH_MAX = 2**31 - 1

_BYTES_WANTED = (
    "binary, large_binary, binary_view, fixed_size_binary, utf8, large_utf8 or utf8_view"
)
_HEADERS_WANTED = "a list or large_list of struct<key: utf8, value: binary>, or map<utf8, binary>"
_TIMESTAMP_WANTED = "timestamp of any unit and zone, or int64 milliseconds"
_PARTITION_WANTED = "int32 (int8, int16 and int64 do as well)"

_TYPE_NAMES = {
    "n": "null",
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
    "z": "binary",
    "Z": "large_binary",
    "vz": "binary_view",
    "u": "utf8",
    "U": "large_utf8",
    "vu": "utf8_view",
    "tdD": "date32",
    "tdm": "date64",
    "tss": "timestamp[s]",
    "tsm": "timestamp[ms]",
    "tsu": "timestamp[us]",
    "tsn": "timestamp[ns]",
    "w": "fixed_size_binary",
    "d": "decimal",
    "+l": "list",
    "+L": "large_list",
    "+vl": "list_view",
    "+vL": "large_list_view",
    "+w": "fixed_size_list",
    "+s": "struct",
    "+m": "map",
    "+r": "run_end_encoded",
}


def columns_by_number(names: Sequence[str]) -> list[int]:
    """Where each is in COLUMNS; InvalidArgument unless all exist and none is named twice."""
    if isinstance(names, str):
        raise InvalidArgument(f"columns={names!r}: give a list of names, [{names!r}]")
    unknown = [each for each in names if each not in COLUMNS]
    if unknown:
        raise InvalidArgument(
            f"there is no column {', '.join(map(repr, unknown))}; a record has {', '.join(COLUMNS)}"
        )
    if not names or len(set(names)) != len(names):
        raise InvalidArgument(f"columns={list(names)!r}: name one or more, each once")
    return [COLUMNS.index(each) for each in names]


@lru_cache(maxsize=64)  # Table after table has the same schema.
def plan_records(schema: Node) -> RecordPlan:
    """Where a record's parts are in a schema, or an InvalidArgument that says why they are not."""
    if schema.format != "+s" or schema.is_dictionary:
        raise InvalidArgument(
            f"records are taken from columns (a table, a struct), not from {_describe(schema)}"
        )
    found: dict[str, int] = {}
    for index, column in enumerate(schema.children):
        if column.name not in COLUMNS:
            raise InvalidArgument(
                f"unknown column {column.name!r}; a record has {', '.join(COLUMNS)}"
            )
        if column.name in found:
            raise InvalidArgument(f"column {column.name!r} occurs twice")
        found[column.name] = index
    if "value" not in found:
        raise InvalidArgument("there is no column 'value'; only the others may be left out")
    columns = {name: (index, schema.children[index]) for name, index in found.items()}
    return RecordPlan(
        _strings(columns.get("key")),
        _strings(columns.get("value")),
        _headers(columns.get("headers")),
        _timestamps(columns.get("timestamp")),
        _partitions(columns.get("partition")),
    )


def null_row(row: int) -> InvalidArgument:
    """The error for a struct that is null where a record should be."""
    return InvalidArgument(f"row {row} is null; a record cannot be")


def null_header(row: int) -> InvalidArgument:
    """The error for an entry that is null in a list of headers."""
    return InvalidArgument(f"row {row}: a header is null; leave it out of the list")


def null_header_key(row: int) -> InvalidArgument:
    """The error for a header without a key."""
    return InvalidArgument(f"row {row}: the key of a header is null; only its value may be")


STRING_COLUMNS = ("key", "value", "headers", "headers.key", "headers.value")
"""Columns whose values lie where offsets or views say, in the order in which they are checked."""


def unsound_value(column: str, index: int) -> InvalidArgument:
    """The error for offsets or views that point nowhere."""
    place = "entry" if "." in column else "row"
    return InvalidArgument(f"{place} {index}: column {column!r} has offsets that leave its data")


def unsound_schema() -> InvalidArgument:
    """The error for a schema without a format, or with fewer children than it counts."""
    return InvalidArgument("the Arrow schema is incomplete")


def already_taken() -> InvalidArgument:
    """The error for a capsule that is empty."""
    return InvalidArgument("the Arrow data was taken before, or released; export it again")


def unsound_array() -> InvalidArgument:
    """The error for an array with too few buffers, children or rows for its schema."""
    return InvalidArgument("the Arrow array does not have the shape of its schema")


def bad_partition(row: int, partition: int) -> InvalidArgument:
    """The error for a partition number that no partition has."""
    return InvalidArgument(f"row {row}: partition {partition} is not in 0..2147483647")


def no_such_partition(row: int, partition: int, count: int) -> InvalidArgument:
    """The partition column names one that the topic has not."""
    return InvalidArgument(
        f"row {row}: there is no partition {partition}; the topic has {count}, from 0"
    )


def timestamp_overflow(row: int) -> OverflowError:
    """The error for a time that has no 64-bit number of milliseconds."""
    return OverflowError(f"row {row}: the timestamp does not fit 64 bits of milliseconds")


def stream_failure(code: int, problem: str) -> OSError:
    """The error for a stream that stops with an errno."""
    return OSError(code, f"the Arrow stream failed: {problem or 'no reason given'}")


def not_arrow(data: object) -> TypeError:
    """The error for an object without the PyCapsule interface."""
    return TypeError(
        f"{type(data).__name__} gives no Arrow data: "
        "it has neither __arrow_c_stream__ nor __arrow_c_array__"
    )


def _describe(column: Node) -> str:
    if column.is_dictionary:
        return "dictionary"
    kind = column.format.split(":", 1)[0]
    name = _TYPE_NAMES.get(kind, f"the Arrow format {column.format!r}")
    if not column.children:
        return name
    return f"{name}<{', '.join(_describe(child) for child in column.children)}>"


def _unusable(path: str, column: Node, wanted: str) -> InvalidArgument:
    if column.is_dictionary:
        return InvalidArgument(
            f"column {path!r} is dictionary-encoded; cast it to the type of its values first"
        )
    return InvalidArgument(f"column {path!r} is {_describe(column)}; it must be {wanted}")


def _strings(
    column: tuple[int, Node] | None,
    path: str = "",
    layouts: dict[str, Layout] = _BYTES,
    wanted: str = _BYTES_WANTED,
) -> Strings:
    if column is None:
        return Strings()
    index, node = column
    if not node.is_dictionary:
        if node.format == "n":
            return Strings(index, Layout.NULLS)
        if node.format in layouts:
            return Strings(index, layouts[node.format])
        if node.format.startswith(_FIXED_SIZE_BINARY) and layouts is _BYTES:
            width = node.format[len(_FIXED_SIZE_BINARY) :]
            if width.isdecimal() and int(width) <= _WIDTH_MAX:
                return Strings(index, Layout.FIXED, int(width))
    raise _unusable(path or node.name, node, wanted)


def _timestamps(column: tuple[int, Node] | None) -> Timestamps:
    if column is None:
        return Timestamps()
    index, node = column
    if not node.is_dictionary:
        if node.format == "n":
            return Timestamps(index, Layout.NULLS)
        unit = _UNITS.get(node.format.split(":", 1)[0])
        if unit:
            return Timestamps(index, Layout.FIXED, *unit)
    raise _unusable("timestamp", node, _TIMESTAMP_WANTED)


def _partitions(column: tuple[int, Node] | None) -> Strings:
    if column is None:
        return Strings()
    index, node = column
    if not node.is_dictionary:
        if node.format == "n":
            return Strings(index, Layout.NULLS)
        if node.format in _INTEGER_WIDTHS:
            return Strings(index, Layout.FIXED, _INTEGER_WIDTHS[node.format])
    raise _unusable("partition", node, _PARTITION_WANTED)


def _headers(column: tuple[int, Node] | None) -> HeaderLists:
    if column is None:
        return HeaderLists()
    index, node = column
    if node.format == "n" and not node.is_dictionary:
        return HeaderLists(index, Layout.NULLS)
    if node.is_dictionary or node.format not in _LISTS or len(node.children) != 1:
        raise _unusable("headers", node, _HEADERS_WANTED)
    entry = node.children[0]
    # Lists of nothing come with a child of the null type; no entry of theirs can be there.
    if entry.format == "n" and not entry.is_dictionary:
        return HeaderLists(index, _LISTS[node.format], Strings(), Strings())
    if entry.format != "+s" or entry.is_dictionary or len(entry.children) != 2:
        raise _unusable("headers", node, _HEADERS_WANTED)
    keys, values = _entry_fields(node, entry)
    return HeaderLists(
        index,
        _LISTS[node.format],
        _strings(keys, "headers.key", _TEXT, "utf8, large_utf8 or utf8_view"),
        _strings(values, "headers.value"),
    )


def _entry_fields(node: Node, entry: Node) -> tuple[tuple[int, Node], tuple[int, Node]]:
    """The key and the value of an entry: by place in a map, by name in a list."""
    if node.format == "+m":
        return (0, entry.children[0]), (1, entry.children[1])
    names = [child.name for child in entry.children]
    if sorted(names) != ["key", "value"]:
        raise InvalidArgument(
            f"column 'headers' has entries of {' and '.join(names)}; they must be key and value"
        )
    key, value = names.index("key"), names.index("value")
    return (key, entry.children[key]), (value, entry.children[value])
