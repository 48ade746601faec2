"""JSON to columns: a whole batch in one call of Arrow's reader, the odd records one by one.

Arrow's reader takes documents one after another and gives up at the first that is wrong. So a batch
goes to it in one piece; only if that fails are the documents looked at singly, and the rest goes to
it again, as it is. Which way a record went never shows in the result: what the first way takes, the
others take too, and they give the same.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.client.serialization.framing import FRAME_BYTES, MAGIC, not_framed
from millstream.spark.decoding.conversion import converter
from millstream.spark.decoding.formats import Faults, ValueFormat, cause_of, decode_each

_VALUE_BYTES_MAX = (1 << 31) - 1
_STANDS_FOR = {pa.date32(): pa.string()}
"""Types that Arrow's reader does not make, and what it makes instead, to be cast."""


class JsonValues(ValueFormat):
    """Objects of a schema. Fields that are not in it are passed over, missing ones are null."""

    def __init__(self, arrow_type: pa.StructType, *, is_framed: bool = False) -> None:
        """`is_framed` with a schema registry: a zero and an id stand before each document."""
        self._type = arrow_type
        self._is_framed = is_framed
        self._loads = _json_loads(keeps_decimals=_has_decimal(arrow_type))
        self._convert = converter(arrow_type)
        self._schema = pa.schema([_readable(field) for field in arrow_type])
        self._is_readable = _is_readable(arrow_type)

    def decode(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        """A struct for each document."""
        return self._decode_framed(values) if self._is_framed else self._decode(values)

    def _decode_framed(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        is_framed = pc.and_(
            pc.starts_with(values, MAGIC), pc.greater_equal(pc.binary_length(values), FRAME_BYTES)
        )
        framed = pc.indices_nonzero(is_framed)
        documents = pc.binary_slice(values.take(framed), FRAME_BYTES, _VALUE_BYTES_MAX)
        decoded, found = self._decode(documents)
        if len(framed) == len(values):
            return decoded, found
        rows: list[int] = framed.to_pylist()
        places: list[int | None] = [None] * len(values)
        for position, row in enumerate(rows):
            places[row] = position
        faults = {rows[position]: cause for position, cause in found.items()}
        for row in pc.indices_nonzero(pc.invert(is_framed)).to_pylist():
            faults[row] = cause_of(not_framed(values[row].as_py()))
        return decoded.take(pa.array(places, pa.int64())), faults

    def _decode(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        if not self._is_readable:
            return decode_each(values.to_pylist(), self._decode_one, self._type)
        try:
            return self._read(values), {}
        except (pa.ArrowException, ValueError):
            return self._read_singly(values)

    def _read(self, values: pa.Array) -> pa.Array:
        """All documents in one call; an error if any record is not exactly one object."""
        # A text that neither begins nor ends like an object could join with its neighbours to one.
        # With these two checks and the count, every record is one object by itself.
        is_whole = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
        if not pc.all(is_whole, min_count=0).as_py():
            raise ValueError("not an object")
        values.cast(pa.string())  # Arrow's reader does not check the encoding.
        rows = self._read_text(_joined(values))
        if len(rows) != len(values):
            raise ValueError("more than one document")
        return rows

    def _read_text(self, text: pa.Buffer) -> pa.Array:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(text.size, 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=self._schema, unexpected_field_behavior="ignore"
            ),
        )
        rows = table.to_struct_array().combine_chunks()
        rows = pa.concat_arrays(rows.chunks) if isinstance(rows, pa.ChunkedArray) else rows
        return rows if rows.type == self._type else rows.cast(self._type)

    def _read_singly(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        """Find what is no JSON, then halve the rest until what does not fit stands alone."""
        faults: Faults = {}
        documents: list[bytes] = []
        rows: list[int] = []
        places: list[int | None] = [None] * len(values)
        for index, value in enumerate(values.to_pylist()):
            try:
                document = self._loads(value.decode())
                if document is not None and not isinstance(document, dict):
                    raise TypeError(f"{type(document).__name__} instead of an object")  # noqa: TRY301
            except Exception as error:
                faults[index] = cause_of(error)
                continue
            if document is not None:
                places[index] = len(rows)
                documents.append(value)
                rows.append(index)
        decoded = self._halve(documents, rows, faults)
        return decoded.take(pa.array(places, pa.int64())), faults

    def _halve(self, documents: list[bytes], rows: list[int], faults: Faults) -> pa.Array:
        if not documents:
            return pa.nulls(0, self._type)
        try:
            return self._read_text(pa.py_buffer(b"\n".join(documents)))
        except (pa.ArrowException, ValueError):
            if len(documents) == 1:
                return self._read_one(documents[0], rows[0], faults)
        middle = len(documents) // 2
        halves = (
            self._halve(documents[:middle], rows[:middle], faults),
            self._halve(documents[middle:], rows[middle:], faults),
        )
        return pa.concat_arrays(halves)

    def _read_one(self, document: bytes, row: int, faults: Faults) -> pa.Array:
        """A document that Arrow's reader does not take: it may only have a name twice."""
        decoded, found = decode_each([document], self._decode_one, self._type)
        if found:
            faults[row] = found[0]
        return decoded

    def _decode_one(self, value: bytes) -> Any:
        return self._convert(self._loads(value.decode()))


def _joined(values: pa.Array) -> pa.Buffer:
    ends = pa.array([0, len(values)], pa.int32())
    as_list = pa.ListArray.from_arrays(ends, values)
    return pc.binary_join(as_list, b"\n")[0].as_buffer()


def _readable(field: pa.Field) -> pa.Field:
    """The field as Arrow's reader is asked for it."""
    return field.with_type(_readable_type(field.type))


def _readable_type(wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(wanted):
        return pa.struct([_readable(each) for each in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(_readable(wanted.value_field))
    return _STANDS_FOR.get(wanted, wanted)


def _is_readable(wanted: pa.DataType) -> bool:
    """Whether Arrow's reader knows it: not objects as maps, not bytes as base64."""
    if pa.types.is_struct(wanted):
        return all(_is_readable(each.type) for each in wanted)
    if pa.types.is_list(wanted):
        return _is_readable(wanted.value_type)
    return not (pa.types.is_map(wanted) or pa.types.is_binary(wanted))


def _has_decimal(wanted: pa.DataType) -> bool:
    if pa.types.is_map(wanted):
        return _has_decimal(wanted.item_type)
    if pa.types.is_nested(wanted):
        return any(_has_decimal(wanted.field(at).type) for at in range(wanted.num_fields))
    return bool(pa.types.is_decimal(wanted))


def _json_loads(*, keeps_decimals: bool) -> Any:
    if keeps_decimals:  # A float would not keep their digits.
        return partial(json.loads, parse_float=Decimal)
    if find_spec("orjson") is not None:
        import orjson

        return orjson.loads
    return json.loads
