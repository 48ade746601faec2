"""Avro to columns, through fastavro: the types of a schema, and the reading of values.

With a schema registry each value names the schema it was written with, which is resolved to the
reader's; without one all values are of the schema that was given. The reader's schema may refer to
others of the registry.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as T

from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.packages import require
from millstream.errors import InvalidArgument
from millstream.spark.decoding.conversion import converter
from millstream.spark.decoding.formats import Faults, ValueFormat, decode_each

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from millstream.client.serialization.schema_registry import Schema, SchemaRegistryClient

_PRIMITIVES: Final[dict[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "enum": T.StringType(),
    "fixed": T.BinaryType(),
}
_LOGICAL: Final[dict[str, T.DataType]] = {
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(),
    "local-timestamp-micros": T.TimestampNTZType(),
    "uuid": T.StringType(),
}
_WIDER: Final = (
    ({"int", "long"}, T.LongType()),
    ({"float", "double"}, T.DoubleType()),
)
_DEPTH_MAX: Final = 32


class AvroValues(ValueFormat):
    """Values of an Avro record."""

    def __init__(
        self,
        arrow_type: pa.StructType,
        schema: Schema | None,
        registry: SchemaRegistryClient | None,
    ) -> None:
        """With a registry there may be no schema: then fields are those of each writer's."""
        self._type = arrow_type
        self._convert = converter(arrow_type)
        if registry is not None:
            serde: AvroSerde[Any] = AvroSerde(registry, reader_schema=schema)
            self._read = lambda data: self._convert(serde.deserialize("", data, ()))
        else:
            assert schema is not None
            fastavro = require("fastavro", "valueFormat=avro")
            self._parsed = fastavro.parse_schema(json.loads(schema.text))
            self._reader = fastavro.schemaless_reader
            self._read = self._read_plain

    def decode(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        """A struct for each record."""
        return decode_each(values.to_pylist(), self._read, self._type)

    def _read_plain(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = self._reader(stream, self._parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return self._convert(value)


def avro_type(schema: str, imported: Iterable[str] = ()) -> T.StructType:
    """The columns of an Avro record. `imported` are schemas whose names it uses, in order."""
    types = _Types()
    for each in imported:
        _translate(types, each)
    found = _translate(types, schema)
    if not isinstance(found, T.StructType):
        raise InvalidArgument("the Avro schema is no record, so it has no columns")
    return found


def _translate(types: _Types, schema: str) -> T.DataType:
    try:
        written = json.loads(schema)
    except ValueError as error:
        raise InvalidArgument(f"the Avro schema is no JSON: {error}") from error
    try:
        return types.of(written, 0, "")
    except (AttributeError, TypeError) as error:
        raise InvalidArgument(f"the Avro schema is not well formed: {schema[:80]}") from error
    except KeyError as error:
        raise InvalidArgument(f"a part of the Avro schema lacks {error}") from error


class _Types:
    """Translates a schema; named types may be referred to after they were defined.

    `space` is the namespace of the definition around: names without a dot are of it.
    """

    def __init__(self) -> None:
        self._named: dict[str, T.DataType] = {}

    def of(self, schema: Any, depth: int, space: str) -> T.DataType:
        if depth > _DEPTH_MAX:
            raise InvalidArgument(f"the Avro schema is nested more than {_DEPTH_MAX} deep")
        if isinstance(schema, list):
            return self._union(schema, depth, space)
        if isinstance(schema, str):
            return self._by_name(schema, space)
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.of(kind, depth + 1, space)
        if kind == "fixed":
            self._define(schema, space, self._logical(schema) or _PRIMITIVES[kind])
        logical = self._logical(schema)
        if logical is not None:
            return logical
        match kind:
            case "record" | "error":
                return self._record(schema, depth, space)
            case "array":
                return T.ArrayType(self.of(schema["items"], depth + 1, space))
            case "map":
                return T.MapType(T.StringType(), self.of(schema["values"], depth + 1, space))
            case "enum":
                self._define(schema, space, _PRIMITIVES[kind])
        return self._by_name(kind, space)

    def _logical(self, schema: Any) -> T.DataType | None:
        if schema.get("logicalType") == "decimal":
            return T.DecimalType(schema["precision"], schema.get("scale", 0))
        return _LOGICAL.get(schema.get("logicalType", ""))

    def _record(self, schema: Any, depth: int, space: str) -> T.DataType:
        inner, _ = _full_name(schema, space)
        fields = [
            T.StructField(field["name"], self.of(field["type"], depth + 1, inner))
            for field in schema["fields"]
        ]
        return self._define(schema, space, T.StructType(fields))

    def _define(self, schema: Any, space: str, found: T.DataType) -> T.DataType:
        _, name = _full_name(schema, space)
        self._named[name] = found
        return found

    def _by_name(self, name: str, space: str) -> T.DataType:
        full = name if "." in name or not space else f"{space}.{name}"
        found = _PRIMITIVES.get(name) or self._named.get(full) or self._named.get(name)
        if found is None:
            raise InvalidArgument(f"the Avro type {name!r} is unknown, or refers to itself")
        return found

    def _union(self, members: list[Any], depth: int, space: str) -> T.DataType:
        real = [each for each in members if each != "null"]
        if len(real) == 1:
            return self.of(real[0], depth + 1, space)
        for kinds, wider in _WIDER:
            if all(isinstance(each, str) for each in real) and set(real) <= kinds:
                return wider
        raise InvalidArgument(f"a union of {real} has no type in Spark; one type and null has")


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """The namespace that a definition opens, and its own full name."""
    name: str = schema["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    own: str = schema.get("namespace", space)
    return own, f"{own}.{name}" if own else name
