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


class Tampered:
    """Arrow data whose array was changed on the way."""

    def __init__(self, data: Any, change: Any) -> None:
        self._data = data
        self._change = change

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        schema, capsule = self._data.__arrow_c_array__()
        array = arrow_abi.take(capsule, b"arrow_array", arrow_abi.ArrowArray)
        self._change(array)
        return schema, arrow_abi.to_capsule(array, b"arrow_array")


class FailingStream:
    """A stream that gives an errno for its schema, with or without a reason."""

    def __init__(self, reason: bytes | None) -> None:
        self._text = ctypes.create_string_buffer(reason) if reason else None
        self._callbacks = (
            arrow_abi.GetSchema(lambda stream, out: 22),
            arrow_abi.GetNext(lambda stream, out: 22),
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
