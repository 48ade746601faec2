"""Arrow data for tests: as it comes, with only half of the interface, tampered with, failing."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from millstream.records.plain import arrow_abi

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
"""One header in a list of them."""


def rows_of(kernel: Any, data: Any) -> list[Any]:
    """(timestamp, key, value, headers) of all rows."""
    return [
        chunk.row(index) for chunk in kernel.ArrowRecordsReader(data) for index in range(len(chunk))
    ]


class OnlyArray:
    """Arrow data that has no stream, as a scalar library may export it."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._data.__arrow_c_array__(requested_schema)


def _on_release_copy(array: Any) -> None:
    arrow_abi.let_go(array.contents.private_data)
    array.contents.release = arrow_abi.ReleaseArray()


_release_copy = arrow_abi.ReleaseArray(_on_release_copy)


def _copied(array: Any, kept: list[Any]) -> Any:
    """The same array in structures of our own, whatever is done to which."""
    copy = arrow_abi.ArrowArray.from_buffer_copy(array)
    buffers = (ctypes.c_void_p * array.n_buffers)(*array.buffers[: array.n_buffers])
    children = [_copied(array.children[i].contents, kept) for i in range(array.n_children)]
    pointers = arrow_abi.pointers_to(children, arrow_abi.ArrowArray)
    copy.buffers = ctypes.cast(buffers, type(copy.buffers))
    copy.children = ctypes.cast(pointers, type(copy.children))
    kept += [buffers, children, pointers]
    return copy


class Tampered:
    """Arrow data whose array was changed on the way, in a copy: its owner releases the original."""

    def __init__(self, data: Any, change: Any) -> None:
        self._data = data
        self._change = change

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        schema, capsule = self._data.__arrow_c_array__()
        original = arrow_abi.take(capsule, b"arrow_array", arrow_abi.ArrowArray)
        kept = [arrow_abi.to_capsule(original, b"arrow_array")]
        array = _copied(original, kept)
        array.release = _release_copy
        array.private_data = arrow_abi.keep_alive(kept)
        self._change(array)
        return schema, arrow_abi.to_capsule(array, b"arrow_array")


class FailingStream:
    """A stream that gives a code for its schema, with or without a reason, and nothing else."""

    def __init__(self, reason: bytes | None, code: int = 22) -> None:
        self._text = ctypes.create_string_buffer(reason) if reason else None
        self._callbacks = (
            arrow_abi.GetSchema(lambda stream, out: code),
            arrow_abi.GetNext(lambda stream, out: code),
            arrow_abi.GetLastError(
                lambda stream: ctypes.addressof(self._text) if self._text else None
            ),
            arrow_abi.ReleaseStream(self._on_release),
        )
        self.release_count = 0

    def _on_release(self, stream: Any) -> None:
        self.release_count += 1
        stream.contents.release = arrow_abi.ReleaseStream()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = arrow_abi.ArrowArrayStream(*self._callbacks)
        self.capsule = arrow_abi.to_capsule(stream, b"arrow_array_stream")
        return self.capsule
