"""Rows of an Arrow table as JSON objects, a column at a time, by Arrow's own functions of text.

pyarrow reads JSON and does not write it. Numbers, booleans, text and times are written here as
columns of text that are joined in the end; nested values and texts with control characters go
through `json.dumps`, value by value.
"""

from __future__ import annotations

import json
from typing import Any

from millstream.client.serialization.packages import require

_WHAT = "value_format='json'"


def json_objects(batch: Any) -> Any:
    """A column of bytes: each row of the batch as one object."""
    pa, pc = require("pyarrow", _WHAT), require("pyarrow.compute", _WHAT)
    pieces: list[Any] = []
    for number, name in enumerate(batch.schema.names):
        head = f"{',' if number else '{'}{json.dumps(name)}:"
        pieces += [pa.scalar(head), pc.fill_null(_texts(batch.column(number)), "null")]
    pieces.append(pa.scalar("}" if pieces else "{}"))
    return pc.binary_join_element_wise(*pieces, "").cast(pa.binary())


def _texts(column: Any) -> Any:
    """Each value as JSON; null where it is null."""
    pa, pc = require("pyarrow", _WHAT), require("pyarrow.compute", _WHAT)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _texts(column.dictionary_decode())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        # JSON has no infinity.
        return pc.if_else(pc.is_finite(column), column.cast(pa.string()), None)
    if str(kind) in ("string", "large_string", "string_view"):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    return _dumped(column)


def _quoted(texts: Any) -> Any:
    pa, pc = require("pyarrow", _WHAT), require("pyarrow.compute", _WHAT)
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        return _dumped(texts)
    escaped = texts
    for mark in ("\\", '"'):
        if pc.any(pc.match_substring(texts, mark)).as_py():
            escaped = pc.replace_substring(escaped, mark, "\\" + mark)
    return pc.binary_join_element_wise(pa.scalar('"'), escaped, pa.scalar('"'), "")


def _dumped(column: Any) -> Any:
    pa = require("pyarrow", _WHAT)
    values = column.to_pylist()
    return pa.array([None if each is None else _dump(each) for each in values], pa.string())


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """What JSON has no form for, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
