"""A stream of Arrow arrays that are made as they are asked for; plain `ArrowStream`."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any

from millstream._accel.arrow.schema import COLUMNS, columns_by_number
from millstream.records.plain.arrow_abi import (
    ArrowArray,
    ArrowArrayStream,
    GetLastError,
    GetNext,
    GetSchema,
    ReleaseStream,
    for_good,
    held,
    keep_alive,
    let_go,
    to_capsule,
)
from millstream.records.plain.arrow_builder import export_array, export_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.records.plain.arrow_builder import ArrowRecords


class ArrowStream:
    """An "arrow_array_stream" of all ArrowRecords that an iterator gives; it can be taken once.

    What the iterator raises ends the stream with an error in words, and is kept in `error`.
    """

    def __init__(
        self,
        records: Iterable[ArrowRecords],
        columns: Sequence[str] | None = None,
        with_views: bool = False,
    ) -> None:
        """Views would gain nothing here: `with_views` is for the compiled version."""
        self._records = iter(records)
        self._columns = COLUMNS if columns is None else columns
        self.numbers = tuple(columns_by_number(self._columns))
        self.error: BaseException | None = None
        self.message: Any = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream. A request for other types is ignored."""
        exported = ArrowArrayStream(
            get_schema=_stream_schema,
            get_next=_stream_next,
            get_last_error=_stream_error,
            release=_release_stream,
        )
        exported.private_data = keep_alive(self)
        return to_capsule(exported, b"arrow_array_stream")

    def next_array(self) -> ArrowArray:
        """The next one, or one that says that there are no more."""
        records = next(self._records, None)
        return ArrowArray() if records is None else export_array(records.select(self._columns))

    def fail(self, error: BaseException) -> int:
        """Keep the error and its words; the number for it."""
        self.error = error
        text = f"{type(error).__name__}: {error}"
        self.message = ctypes.create_string_buffer(text.encode("utf-8", "replace"))
        return errno.EIO


def _on_schema(stream: Any, out: Any) -> int:
    out[0] = export_schema(held(stream.contents.private_data).numbers)
    return 0


def _on_next(stream: Any, out: Any) -> int:
    source: ArrowStream = held(stream.contents.private_data)
    try:
        out[0] = source.next_array()
    except BaseException as error:
        out[0] = ArrowArray()
        return source.fail(error)
    return 0


def _on_error(stream: Any) -> int | None:
    message = held(stream.contents.private_data).message
    return None if message is None else ctypes.addressof(message)


def _on_release(stream: Any) -> None:
    let_go(stream.contents.private_data)
    stream.contents.release = ReleaseStream()


_stream_schema = GetSchema(_on_schema)
_stream_next = GetNext(_on_next)
_stream_error = GetLastError(_on_error)
_release_stream = for_good(ReleaseStream(_on_release))
