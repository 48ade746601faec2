"""Typed columns to bytes and back, for `send_batch` and `read_topic`: a column at a time.

JSON, text and whole numbers are encoded and decoded by Arrow's own functions, without a Python step
per row; Avro and serdes of the user's are called for each row. It needs pyarrow, and knows nothing
of topics but their names in errors.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, TypedDict

from millstream.client.serialization.json_columns import json_objects
from millstream.client.serialization.packages import require
from millstream.client.serialization.resolution import as_deserializer, as_serializer
from millstream.errors import InvalidArgument, SerializationFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_INT_BYTES: Final = {"int16": 2, "int32": 4, "int64": 8}
"""Whole numbers as Java's serializers write them: big-endian."""
_ROWS_AT_ONCE: Final = 1 << 16
"""Rows that are encoded together: their columns of text stay in the caches."""
_WANTS_PYARROW: Final = "columns with types"


class TableFormats(TypedDict, total=False):
    """How typed columns are written, or read; None leaves bytes as they are."""

    key_format: Any
    value_format: Any
    value_schema: Any


def encode_table(
    topic: str,
    table: object,
    key: str | None,
    key_format: Any = None,
    value_format: Any = None,
    value_schema: Any = None,
) -> Any:
    """The rows of a table as a table of `key` and `value`, in bytes."""
    pa = require("pyarrow", _WANTS_PYARROW)
    if value_format is None:
        raise InvalidArgument(
            "key= and key_format= go with value_format=, which says what the columns become: "
            "'json', 'avro' or a serializer; without it, name the columns key and value"
        )
    rows = table if isinstance(table, pa.Table) else pa.table(table)
    if key is not None and key not in rows.column_names:
        raise InvalidArgument(f"key={key!r}: the table has {', '.join(rows.column_names)}")
    encoded = []
    for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE):
        columns = {"value": _encoded_values(topic, batch, value_format, value_schema)}
        if key is not None:
            columns["key"] = _encoded_keys(topic, batch.column(key), key_format)
        encoded.append(pa.table(columns))
    return pa.concat_tables(encoded) if encoded else pa.table({"value": pa.array([], pa.binary())})


def _encoded_keys(topic: str, keys: Any, key_format: Any) -> Any:
    pa = require("pyarrow", _WANTS_PYARROW)
    name = _format_of(keys.type) if key_format is None else key_format
    if name in _INT_BYTES:
        return _big_endian(keys.cast(name), _INT_BYTES[name])
    if name == "bytes":
        return keys.cast(pa.binary())
    if name == "str":
        return keys.cast(pa.string())
    serialize = as_serializer(name, is_key=True).serialize
    return pa.array([serialize(topic, each, []) for each in keys.to_pylist()], pa.binary())


def _format_of(kind: Any) -> str:
    """How keys of a type are written unless it is said: numbers as numbers, the rest as text."""
    pa = require("pyarrow", _WANTS_PYARROW)
    if pa.types.is_integer(kind):
        return "int32" if kind.bit_width == 32 else "int16" if kind.bit_width == 16 else "int64"
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return "bytes" if is_bytes else "str"


def _big_endian(numbers: Any, width: int) -> Any:
    pa = require("pyarrow", _WANTS_PYARROW)
    swapped = numbers.fill_null(0).to_numpy().astype(f">i{width}").tobytes()
    fixed = pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(swapped)])
    written = fixed.cast(pa.binary())
    if not numbers.null_count:
        return written
    return require("pyarrow.compute", _WANTS_PYARROW).if_else(numbers.is_valid(), written, None)


def _encoded_values(topic: str, batch: Any, value_format: Any, schema: Any) -> Any:
    pa = require("pyarrow", _WANTS_PYARROW)
    if value_format == "json":
        return json_objects(batch)
    if value_format == "avro":
        encode = _avro_encoder(schema)
        return pa.array([encode(row) for row in batch.to_pylist()], pa.binary())
    serialize = as_serializer(value_format).serialize
    return pa.array([serialize(topic, row, []) for row in batch.to_pylist()], pa.binary())


def decode_table(
    topic: str,
    table: Any,
    key_format: Any = None,
    value_format: Any = None,
    value_schema: Any = None,
) -> Any:
    """A table of bytes with its keys typed and the fields of its values as columns."""
    found: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if name == "key" and key_format is not None:
            found[name] = _decoded_keys(topic, table, column, key_format)
        elif name == "value" and value_format is not None:
            fields = _decoded_values(topic, table, column, value_format, value_schema)
            _add_fields(found, fields, table.column_names)
        else:
            found[name] = column
    return require("pyarrow", _WANTS_PYARROW).table(found)


def _add_fields(found: dict[str, Any], fields: Any, taken: list[str]) -> None:
    for field in fields.column_names:
        if field in taken and field != "value":
            raise InvalidArgument(
                f"values have a field {field!r}, as records have: read without the record's own, "
                "columns=['value'] for one"
            )
        found[field] = fields.column(field)


def _decoded_keys(topic: str, table: Any, keys: Any, key_format: Any) -> Any:
    pa = require("pyarrow", _WANTS_PYARROW)
    if key_format == "bytes":
        return keys
    if key_format == "str":
        return keys.cast(pa.string())
    if key_format in _INT_BYTES:
        return _numbers(topic, table, keys, key_format)
    deserialize = as_deserializer(key_format, is_key=True).deserialize
    return pa.array([deserialize(topic, each, ()) for each in keys.to_pylist()])


def _numbers(topic: str, table: Any, keys: Any, name: str) -> Any:
    pa, pc = require("pyarrow", _WANTS_PYARROW), require("pyarrow.compute", _WANTS_PYARROW)
    np, width = require("numpy", _WANTS_PYARROW), _INT_BYTES[name]
    written = keys.fill_null(bytes(width))
    lengths = pc.binary_length(written)
    if len(keys) and pc.min_max(lengths).as_py() != {"min": width, "max": width}:
        row = pc.index(pc.not_equal(lengths, width), True).as_py()
        size = lengths[row].as_py()
        raise _not_readable(topic, table, row, f"a key of {size} bytes is no {name} of {width}")
    packed = written.cast(pa.binary(width)).buffers()[1]
    numbers = np.frombuffer(packed, f">i{width}", len(keys)).astype(f"i{width}")
    return pa.array(numbers, mask=keys.is_null().to_numpy(zero_copy_only=False))


def _decoded_values(topic: str, table: Any, values: Any, value_format: Any, schema: Any) -> Any:
    pa = require("pyarrow", _WANTS_PYARROW)
    if value_format == "json":
        return _json_columns(topic, table, values, schema)
    if value_format == "avro":
        decode: Callable[[Any], Any] = _avro_decoder(schema)
        schema = None
    else:
        deserialize = as_deserializer(value_format).deserialize

        def decode(data: Any) -> Any:
            return deserialize(topic, data, ())

    rows = []
    for row, data in enumerate(values.to_pylist()):
        try:
            rows.append({} if data is None else decode(data))
        except Exception as error:
            raise _not_readable(topic, table, row, error) from error
    return pa.Table.from_pylist(rows, _as_schema(schema))


def _json_columns(topic: str, table: Any, values: Any, schema: Any) -> Any:
    """Objects as columns: Arrow's own reader, on all of them at once."""
    pa, pc = require("pyarrow", _WANTS_PYARROW), require("pyarrow.compute", _WANTS_PYARROW)
    reader = require("pyarrow.json", _WANTS_PYARROW)
    explicit = _as_schema(schema)
    present = values.drop_null()
    if not len(present):
        names = [] if explicit is None else explicit
        return pa.table({each.name: pa.nulls(len(values), each.type) for each in names})
    offsets = pa.array([0, len(present)], pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, present.cast(pa.large_binary()))
    joined = pc.binary_join(lists, pa.scalar(b"\n", pa.large_binary()))[0].as_buffer()
    try:
        parsed = reader.read_json(
            pa.BufferReader(joined),
            read_options=reader.ReadOptions(block_size=max(1 << 20, len(joined))),
            parse_options=reader.ParseOptions(
                explicit_schema=explicit,
                newlines_in_values=True,
                unexpected_field_behavior="infer" if explicit is None else "ignore",
            ),
        )
    except pa.ArrowInvalid as error:
        raise _not_json(topic, table, values, error) from error
    if parsed.num_rows != len(present):
        raise _not_json(topic, table, values, "a value is not one object")
    if not values.null_count:
        return parsed
    valid = values.is_valid()
    places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return parsed.take(pc.if_else(valid, places, None))


def _not_json(topic: str, table: Any, values: Any, error: object) -> SerializationFailed:
    """The error for the first value that is no object."""
    for row, data in enumerate(values.to_pylist()):
        try:
            if data is None or isinstance(json.loads(data), dict):
                continue
        except ValueError as fault:
            return _not_readable(topic, table, row, fault)
        return _not_readable(topic, table, row, "it is JSON, but no object")
    return SerializationFailed(f"topic {topic}: values do not fit the schema: {error}")


def _not_readable(topic: str, table: Any, row: int, error: object) -> SerializationFailed:
    """Names a record by its place, as far as the columns that were read tell it."""
    names = table.column_names
    place = f"row {row}"
    if "partition" in names and "offset" in names:
        place = f"{topic}-{table['partition'][row]} at offset {table['offset'][row]}"
    return SerializationFailed(f"topic {topic}: {place} could not be read: {error}")


def _as_schema(given: Any) -> Any:
    """An Arrow schema: as it is, or from names and types."""
    pa = require("pyarrow", _WANTS_PYARROW)
    return given if given is None or isinstance(given, pa.Schema) else pa.schema(given)


def _avro_schema(schema: Any) -> tuple[Any, Any]:
    fastavro = require("fastavro", "value_format='avro'")
    if schema is None:
        raise InvalidArgument("value_format='avro' needs value_schema=, the Avro schema")
    return fastavro, fastavro.parse_schema(
        json.loads(schema) if isinstance(schema, str) else schema
    )


def _avro_encoder(schema: Any) -> Callable[[Any], bytes]:
    fastavro, parsed = _avro_schema(schema)

    def encode(row: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    return encode


def _avro_decoder(schema: Any) -> Callable[[Any], Any]:
    fastavro, parsed = _avro_schema(schema)
    return lambda data: fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
