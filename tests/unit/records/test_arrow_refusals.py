"""Arrow data that is no records: each kind is refused, with words that say what would do."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from millstream.errors import InvalidArgument
from millstream.records.plain import arrow_abi
from tests.unit.records.arrow_sources import (
    ENTRY,
    FailingStream,
    OnlyArray,
    Tampered,
    rows_of,
)

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

BYTES = "binary, large_binary, binary_view, fixed_size_binary, utf8, large_utf8 or utf8_view"
HEADER_LISTS = "a list or large_list of struct<key: utf8, value: binary>, or map<utf8, binary>"
VALUE = pa.array([b""])
RELEASE_NOTHING = arrow_abi.ReleaseSchema(lambda schema: None)


UNUSABLE_SCHEMAS = [
    ({"key": VALUE}, "there is no column 'value'; only the others may be left out"),
    (
        {"value": VALUE, "topic": VALUE},
        "unknown column 'topic'; a record has key, value, headers, timestamp, offset, partition",
    ),
    ({"value": pa.array([1.5])}, f"column 'value' is double; it must be {BYTES}"),
    ({"value": VALUE, "key": pa.array([1])}, f"column 'key' is int64; it must be {BYTES}"),
    (
        {"value": pa.array(["a"]).dictionary_encode()},
        "column 'value' is dictionary-encoded; cast it to the type of its values first",
    ),
    (
        {"value": VALUE, "timestamp": pa.array(["now"])},
        "column 'timestamp' is utf8; it must be timestamp of any unit and zone, "
        "or int64 milliseconds",
    ),
    (
        {"value": VALUE, "timestamp": pa.array([1]).dictionary_encode()},
        "column 'timestamp' is dictionary-encoded; cast it to the type of its values first",
    ),
    (
        {"value": VALUE, "partition": pa.array([1], pa.uint32())},
        "column 'partition' is uint32; it must be int32 (int8, int16 and int64 do as well)",
    ),
    (
        {"value": VALUE, "partition": pa.array([1]).dictionary_encode()},
        "column 'partition' is dictionary-encoded; cast it to the type of its values first",
    ),
    (
        {"value": VALUE, "headers": pa.array(["h"])},
        f"column 'headers' is utf8; it must be {HEADER_LISTS}",
    ),
    (
        {"value": VALUE, "headers": pa.array([["h"]])},
        f"column 'headers' is list<utf8>; it must be {HEADER_LISTS}",
    ),
    (
        {"value": VALUE, "headers": pa.array([[{"key": "h", "value": b"", "more": 1}]])},
        f"column 'headers' is list<struct<utf8, binary, int64>>; it must be {HEADER_LISTS}",
    ),
    (
        {"value": VALUE, "headers": pa.array([[{"name": "h", "value": b""}]])},
        "column 'headers' has entries of name and value; they must be key and value",
    ),
    (
        {"value": VALUE, "headers": pa.array([[{"key": b"h", "value": b""}]])},
        "column 'headers.key' is binary; it must be utf8, large_utf8 or utf8_view",
    ),
    (
        {"value": VALUE, "headers": pa.array([[{"key": "h", "value": 1}]])},
        f"column 'headers.value' is int64; it must be {BYTES}",
    ),
    (
        {"value": pa.array([1], pa.decimal128(5, 1))},
        f"column 'value' is decimal; it must be {BYTES}",
    ),
    (
        {"value": pa.array([(1, 2, 3)], pa.month_day_nano_interval())},
        f"column 'value' is the Arrow format 'tin'; it must be {BYTES}",
    ),
]
"""Columns, and what is said of them."""


@pytest.mark.parametrize(
    ("columns", "complaint"),
    UNUSABLE_SCHEMAS,
    ids=lambda value: "" if isinstance(value, dict) else value.split(";")[0],
)
def test_a_schema_that_cannot_be_used_is_refused_at_once(
    kernel: Any, columns: Any, complaint: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        kernel.ArrowRecordsReader(pa.table(columns))

    assert str(raised.value) == complaint.replace("is double", "is float64")


def test_a_column_that_occurs_twice_is_refused(kernel: Any) -> None:
    with pytest.raises(InvalidArgument, match="column 'value' occurs twice"):
        kernel.ArrowRecordsReader(pa.table([VALUE, VALUE], names=["value", "value"]))


def test_a_column_alone_is_refused(kernel: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"from columns \(a table, a struct\), not from binar"
    ):
        kernel.ArrowRecordsReader(VALUE)
    with pytest.raises(InvalidArgument, match="not from dictionary"):
        kernel.ArrowRecordsReader(VALUE.dictionary_encode())
    with pytest.raises(InvalidArgument, match="not from int64"):
        kernel.ArrowRecordsReader(OnlyArray(pa.array([1])))


def test_an_object_without_the_interface_is_refused(kernel: Any) -> None:
    with pytest.raises(TypeError, match="list gives no Arrow data: it has neither __arrow_c_str"):
        kernel.ArrowRecordsReader([])


def test_a_capsule_of_another_name_is_refused(kernel: Any) -> None:
    class Confused:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"value": [b""]}).schema.__arrow_c_schema__()

    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        kernel.ArrowRecordsReader(Confused())


# ---- data that cannot be used ----


def test_a_row_that_is_null_is_refused(kernel: Any) -> None:
    rows = pa.array([{"value": b"a"}, None], pa.struct([("value", pa.binary())]))

    with pytest.raises(InvalidArgument, match="row 1 is null; a record cannot be"):
        list(kernel.ArrowRecordsReader(OnlyArray(rows)))
    assert rows_of(kernel, OnlyArray(rows.slice(0, 1))) == [(None, None, b"a", ())]


def test_a_header_that_is_null_is_refused(kernel: Any) -> None:
    column = pa.array([[], [{"key": "k", "value": b""}, None]], pa.list_(ENTRY))

    with pytest.raises(InvalidArgument, match="row 1: a header is null; leave it out of the list"):
        rows_of(kernel, pa.table({"value": [b"", b""], "headers": column}))


def test_a_header_without_a_key_is_refused(kernel: Any) -> None:
    column = pa.array([[{"key": None, "value": b""}]], pa.list_(ENTRY))

    with pytest.raises(InvalidArgument, match="row 0: the key of a header is null; only its value"):
        rows_of(kernel, pa.table({"value": [b""], "headers": column}))


def raw(layout: str, *numbers: int) -> Any:
    return pa.py_buffer(struct.pack(f"<{layout}", *numbers))


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize(
    "column",
    [
        pa.Array.from_buffers(pa.binary(), 2, [None, raw("3i", 0, 2, 1), pa.py_buffer(b"ab")]),
        pa.Array.from_buffers(pa.binary(), 2, [None, raw("3i", 0, -1, 1), pa.py_buffer(b"ab")]),
        pa.Array.from_buffers(pa.binary(), 2, [None, raw("3i", 0, 4000, 2), pa.py_buffer(b"ab")]),
        pa.Array.from_buffers(
            pa.binary(), 2, [None, raw("3i", 0, 2**31 - 1, 2), pa.py_buffer(b"ab")]
        ),
        pa.Array.from_buffers(
            pa.large_binary(), 2, [None, raw("3q", 0, 2, 1), pa.py_buffer(b"ab")]
        ),
        pa.Array.from_buffers(
            pa.large_binary(), 2, [None, raw("3q", 0, 2**60, 2), pa.py_buffer(b"ab")]
        ),
        pa.Array.from_buffers(
            pa.binary_view(), 2, [None, raw("8i", 0, 0, 0, 0, -1, 0, 0, 0), pa.py_buffer(b"")]
        ),
        pa.Array.from_buffers(
            pa.binary_view(), 2, [None, raw("8i", 0, 0, 0, 0, 13, 0, 1, 0), pa.py_buffer(b"a" * 13)]
        ),
        pa.Array.from_buffers(
            pa.binary_view(), 2, [None, raw("8i", 0, 0, 0, 0, 13, 0, 0, 1), pa.py_buffer(b"a" * 13)]
        ),
    ],
    ids=[
        "falling",
        "negative",
        "past the last",
        "far past the last",
        "falling64",
        "far past the last64",
        "negative view",
        "no such buffer",
        "past its buffer",
    ],
)
def test_offsets_that_leave_the_data_are_refused(kernel: Any, name: str, column: Any) -> None:
    columns = {"value": [b"", b""], name: column}

    with pytest.raises(InvalidArgument, match=f"row [01]: column '{name}' has offsets that leave"):
        next(kernel.ArrowRecordsReader(pa.table(columns)))


def test_a_slice_is_held_to_the_data_of_the_whole(kernel: Any) -> None:
    column = pa.Array.from_buffers(
        pa.binary(), 2, [None, raw("3i", 0, 4000, 2), pa.py_buffer(b"ab")]
    )
    rows = pa.StructArray.from_arrays([column], ["value"])

    def take_one(array: Any) -> None:
        array.length = 1

    with pytest.raises(InvalidArgument, match="row 0: column 'value' has offsets that leave"):
        next(kernel.ArrowRecordsReader(Tampered(rows, take_one)))


def test_strings_without_their_data_are_refused(kernel: Any) -> None:
    def forget_data(array: Any) -> None:
        array.children[0].contents.buffers[2] = None

    data = Tampered(pa.record_batch({"value": [b"", b"a"]}), forget_data)

    with pytest.raises(InvalidArgument, match="row 1: column 'value' has offsets that leave"):
        next(kernel.ArrowRecordsReader(data))


def test_views_without_the_sizes_of_their_buffers_are_refused(kernel: Any) -> None:
    def forget_sizes(array: Any) -> None:
        column = array.children[0].contents
        column.buffers[column.n_buffers - 1] = None

    views = raw("4i", 13, 0, 0, 0)
    column = pa.Array.from_buffers(pa.binary_view(), 1, [None, views, pa.py_buffer(b"a" * 13)])
    data = Tampered(pa.record_batch({"value": column}), forget_sizes)

    with pytest.raises(InvalidArgument, match="array does not have the shape of its schema"):
        next(kernel.ArrowRecordsReader(data))


def test_views_that_are_null_may_hold_anything(kernel: Any) -> None:
    views = raw("8i", 1, ord("a"), 0, 0, 13, 0, 9, -1)
    column = pa.Array.from_buffers(pa.binary_view(), 2, [raw("B", 1), views])

    assert rows_of(kernel, pa.table({"value": column})) == [
        (None, None, b"a", ()),
        (None, None, None, ()),
    ]


def test_offsets_need_no_alignment(kernel: Any) -> None:
    offsets = pa.py_buffer(b"!" + struct.pack("<4i", 0, 1, 3, 6)).slice(1)
    column = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abbccc")])

    assert [row[2] for row in rows_of(kernel, pa.table({"value": column}))] == [b"a", b"bb", b"ccc"]


def test_data_is_taken_once(kernel: Any) -> None:
    class Kept:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return self.capsule

    class KeptArray(Kept):
        __arrow_c_stream__: Any = property()

        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return self.capsule

    table = pa.table({"value": [b"a"]})
    for kept in (
        Kept(table.__arrow_c_stream__()),
        KeptArray(table.to_batches()[0].__arrow_c_array__()),
    ):
        assert len(rows_of(kernel, kept)) == 1
        with pytest.raises(InvalidArgument, match="was taken before, or released; export it again"):
            kernel.ArrowRecordsReader(kept)


def test_a_capsule_that_is_dropped_while_the_process_ends_is_left_alone() -> None:
    cleared: list[None] = []

    arrow_abi._on_drop(0, lambda: cleared.append(None), lambda: True)

    assert len(cleared) == 1, "and nothing else was touched: there is no such capsule"


def test_a_schema_without_its_children_is_refused(kernel: Any) -> None:
    class Bare:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            _, array = pa.record_batch({"value": [b"a"]}).__arrow_c_array__()
            self.schema = arrow_abi.ArrowSchema(format=b"+s", n_children=1, release=RELEASE_NOTHING)
            self.kept = arrow_abi.to_capsule(self.schema, b"arrow_schema"), array
            return self.kept

    bare = Bare()

    with pytest.raises(InvalidArgument, match="the Arrow schema is incomplete"):
        kernel.ArrowRecordsReader(bare)
    bare.schema.release = arrow_abi.ReleaseSchema()


def _set(path: str, value: int) -> Any:
    """A change of one number; the path is of children, then a field."""

    def change(array: Any) -> None:
        *children, field = path.split(".")
        for child in children:
            array = array.children[int(child)].contents
        setattr(array, field, value)

    return change


def _forget_values(array: Any) -> None:
    array.children[0].contents.buffers[1] = None


def _forget_buffers(array: Any) -> None:
    array.children[0].contents.buffers = type(array.buffers)()


def _forget_children(array: Any) -> None:
    array.children = type(array.children)()


@pytest.mark.parametrize(
    "change",
    [
        _set("offset", -1),
        _set("length", -1),
        _set("length", 2),
        _set("n_children", 1),
        _set("0.offset", -1),
        _set("0.length", 0),
        _set("0.offset", 2**63 - 1),
        _set("0.n_buffers", 2),
        _set("1.length", 0),
        _set("1.n_children", 0),
        _set("1.0.offset", -1),
        _set("1.0.n_children", 1),
        _set("1.0.length", -1),
        _forget_values,
        _forget_buffers,
        _forget_children,
    ],
)
def test_an_array_without_the_shape_of_its_schema_is_refused(kernel: Any, change: Any) -> None:
    batch = pa.record_batch(
        {"value": [b"v"], "headers": pa.array([[{"key": "k", "value": b"v"}]], pa.list_(ENTRY))}
    )

    with pytest.raises(InvalidArgument, match="array does not have the shape of its schema"):
        list(kernel.ArrowRecordsReader(Tampered(batch, change)))


@pytest.mark.parametrize("offsets", [(0, 2), (1, 0), (-1, 1)])
def test_header_lists_that_leave_their_entries_are_refused(
    kernel: Any, offsets: tuple[int, int]
) -> None:
    numbers = (ctypes.c_int32 * 2)(*offsets)

    def change(array: Any) -> None:
        array.children[1].contents.buffers[1] = ctypes.addressof(numbers)

    column = pa.array([[{"key": "k", "value": b"v"}]], pa.list_(ENTRY))
    batch = pa.record_batch({"value": [b""], "headers": column})

    with pytest.raises(InvalidArgument, match="row 0: column 'headers' has offsets that leave"):
        rows_of(kernel, Tampered(batch, change))


def test_header_strings_that_leave_their_data_are_refused(kernel: Any) -> None:
    text = pa.Array.from_buffers(pa.string(), 2, [None, raw("3i", 0, 2, 1), pa.py_buffer(b"ab")])
    entries = pa.StructArray.from_arrays([text, pa.array([b"", b""])], ["key", "value"])
    column = pa.ListArray.from_arrays([0, 2], entries)

    with pytest.raises(InvalidArgument, match=r"entry 0: column 'headers\.key' has offsets that"):
        rows_of(kernel, pa.table({"value": [b""], "headers": column}))


def test_a_stream_that_fails_says_why(kernel: Any) -> None:
    def batches() -> Any:
        yield pa.record_batch({"value": [b"a"]})
        raise OSError("the disk is gone")

    schema = pa.schema([("value", pa.binary())])
    reader = kernel.ArrowRecordsReader(pa.RecordBatchReader.from_batches(schema, batches()))

    assert len(next(reader)) == 1
    with pytest.raises(OSError, match=r"the Arrow stream failed: .*the disk is gone"):
        next(reader)


@pytest.mark.parametrize(
    ("reason", "told"), [(b"no such table", "no such table"), (None, "no reason given")]
)
def test_a_stream_without_a_schema_says_why_and_is_released_once(
    kernel: Any, reason: bytes | None, told: str
) -> None:
    stream = FailingStream(reason)

    with pytest.raises(OSError, match=f"the Arrow stream failed: {told}") as raised:
        kernel.ArrowRecordsReader(stream)

    assert raised.value.errno == 22
    del raised
    assert stream.release_count == 1


def test_a_stream_that_gives_no_schema_is_refused_and_released(kernel: Any) -> None:
    stream = FailingStream(None, 0)

    with pytest.raises(InvalidArgument, match="the Arrow schema is incomplete") as raised:
        kernel.ArrowRecordsReader(stream)

    del raised
    assert stream.release_count == 1
