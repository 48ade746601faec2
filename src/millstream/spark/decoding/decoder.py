"""The decoder of one query: what columns there are, and batches from bytes to types.

It is made where the query is started, which is when schemas are looked up, and travels to the
executors, where it makes its machinery when the first batch comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from millstream.client.serialization.references import referenced
from millstream.client.serialization.schema_registry import Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SerializationFailed
from millstream.spark.decoding.dead_letters import PLACE_COLUMNS, bury
from millstream.spark.decoding.options import DecodingOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.spark.decoding.formats import Faults, ValueFormat

VALUE: Final = "value"
ERROR_FIELD: Final = StructField(
    "_error",
    StructType([StructField("cause", StringType()), StructField("value", BinaryType())]),
)
"""The column of what could not be decoded: why, and the bytes; null for what could."""

_KINDS: Final = {"json": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}
"""What a registry calls the formats."""


def make_decoder(
    options: Mapping[str, Any],
    schema: StructType | None = None,
    client: Mapping[str, str] | None = None,
) -> Decoder | None:
    """The decoder that the options ask for, or None.

    `schema` is the one that the user gave to the reader, if any: a struct as its `value` names the
    fields to decode. `client` has the settings that dead letters are written with, by Kafka's
    names; those that only consumers know are left out.
    """
    parsed = DecodingOptions.parse(options)
    if parsed.value_format is None:
        return None
    value_schema = _value_schema(parsed)
    value_type = _given_type(schema)
    if value_schema is None and (value_type is None or _needs_schema(parsed)):
        raise InvalidArgument(
            f"valueFormat={parsed.value_format} needs valueSchema, valueSchemaFile, or "
            "schemaRegistryUrl and valueSubject"
        )
    if value_type is None:
        assert value_schema is not None
        value_type = _type_of_schema(parsed, value_schema)
    return Decoder(parsed, value_type, value_schema, dict(client or {}))


class Decoder:
    """Turns the column `value` of batches from bytes into a struct."""

    def __init__(
        self,
        options: DecodingOptions,
        value_type: StructType,
        schema: Schema | None,
        client: Mapping[str, str],
    ) -> None:
        self._options = options
        self._value_type = value_type
        self._schema = schema
        self._client = client
        self._format: ValueFormat | None = None

    @property
    def fields(self) -> tuple[StructField, ...]:
        """The columns that stand for `value`: itself as a struct, and `_error` if asked for."""
        value = StructField(VALUE, self._value_type)
        return (value, ERROR_FIELD) if self._options.on_decode_error == "column" else (value,)

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that a batch must have to be decoded."""
        if self._options.on_decode_error == "deadLetter":
            return (VALUE, *PLACE_COLUMNS)
        return (VALUE,)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_format": None}

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with `value` decoded in its place, and `_error` as its last column if asked
        for. Rows that are dropped or dead letters are missing.
        """
        position = batch.schema.get_field_index(VALUE)
        raw = batch.column(position)
        values, faults = self._decode_values(raw)
        field = pa.field(VALUE, values.type)
        decoded = batch.set_column(position, field, values)
        match self._options.on_decode_error:
            case "column":
                return decoded.append_column(ERROR_FIELD.name, _error_column(raw, faults))
            case "fail" if faults:
                self._fail(batch, faults)
            case "deadLetter" if faults:
                assert self._options.dead_letter_topic is not None
                bury(batch, faults, self._options.dead_letter_topic, self._client)
        return _without(decoded, faults)

    def _decode_values(self, raw: pa.Array) -> tuple[pa.Array, Faults]:
        if self._format is None:
            self._format = self._make_format()
        if raw.null_count == 0:
            return self._format.decode(raw)
        present = pc.indices_nonzero(raw.is_valid())
        values, faults = self._format.decode(raw.take(present))
        # A tombstone stays null and is no fault.
        rows: list[int] = present.to_pylist()
        places: list[int | None] = [None] * len(raw)
        for position, row in enumerate(rows):
            places[row] = position
        return (
            values.take(pa.array(places, pa.int64())),
            {rows[index]: cause for index, cause in faults.items()},
        )

    def _make_format(self) -> ValueFormat:
        arrow_type = to_arrow_type(self._value_type, timezone="UTC")
        options = self._options
        registry = _registry(options) if options.registry_url else None
        match options.value_format:
            case "avro":
                from millstream.spark.decoding.avro_values import AvroValues

                return AvroValues(arrow_type, self._schema, registry)
            case "protobuf":
                from millstream.spark.decoding.protobuf_values import ProtobufValues

                assert self._schema is not None
                return ProtobufValues(
                    arrow_type, self._schema.text, options.value_message, registry
                )
        from millstream.spark.decoding.json_values import JsonValues

        return JsonValues(arrow_type, is_framed=registry is not None)

    def _fail(self, batch: pa.RecordBatch, faults: Faults) -> None:
        row, cause = next(iter(faults.items()))
        place = {
            name: batch.column(name)[row].as_py()
            for name in ("topic", "partition", "offset")
            if name in batch.schema.names
        }
        raise SerializationFailed(
            f"{len(faults)} of {batch.num_rows} values are not {self._options.value_format} of the "
            f"schema; the first, at {place}: {cause}. onDecodeError=column or deadLetter goes on"
        )


def _error_column(raw: pa.Array, faults: Faults) -> pa.Array:
    arrow_type = to_arrow_type(ERROR_FIELD.dataType, timezone="UTC")
    if not faults:
        return pa.nulls(len(raw), arrow_type)
    errors: list[dict[str, Any] | None] = [None] * len(raw)
    for row, cause in faults.items():
        errors[row] = {"cause": cause, "value": raw[row].as_py()}
    return pa.array(errors, arrow_type)


def _without(batch: pa.RecordBatch, faults: Faults) -> pa.RecordBatch:
    if not faults:
        return batch
    kept = [row for row in range(batch.num_rows) if row not in faults]
    return batch.take(pa.array(kept, pa.int64()))


def _given_type(schema: StructType | None) -> StructType | None:
    """The struct that the user asks for as `value`."""
    if schema is not None and VALUE in schema.names:
        found = schema[VALUE].dataType
        if isinstance(found, StructType):
            return found
    return None


def _value_schema(options: DecodingOptions) -> Schema | None:
    """The schema that was given, or the latest of the registry's subject."""
    assert options.value_format is not None
    kind = _KINDS[options.value_format]
    given = options.schema_text()
    if given is not None or options.value_subject is None:
        return None if given is None else Schema(given, kind)
    registry = _registry(options)
    found = registry.version(options.value_subject)
    if found.schema.kind != kind:
        raise InvalidArgument(
            f"valueSubject={options.value_subject!r} has schemas of {found.schema.kind}, which are "
            f"not for valueFormat={options.value_format}"
        )
    if options.value_format != "protobuf":
        return found.schema
    from millstream.spark.decoding.protobuf_values import descriptors_of_subject

    return Schema(descriptors_of_subject(registry, found), kind)


def _needs_schema(options: DecodingOptions) -> bool:
    """Whether columns alone will not do: JSON names its fields, Avro of a registry its schema."""
    return options.value_format == "protobuf" or (
        options.value_format == "avro" and options.registry_url is None
    )


def _type_of_schema(options: DecodingOptions, schema: Schema) -> StructType:
    if options.value_format == "protobuf":
        from millstream.spark.decoding.protobuf_values import protobuf_type

        return protobuf_type(schema.text, options.value_message)
    imported = referenced(_registry(options), schema) if schema.references else {}
    texts = {name: each.schema.text for name, each in imported.items()}
    if options.value_format == "avro":
        from millstream.spark.decoding.avro_values import avro_type

        return avro_type(schema.text, texts.values())
    if schema.text.lstrip().startswith("{"):
        from millstream.spark.decoding.json_schema import json_schema_type

        return json_schema_type(schema.text, texts)
    from millstream.spark.decoding.ddl import parse_ddl

    return parse_ddl(schema.text)


def _registry(options: DecodingOptions) -> SchemaRegistryClient:
    assert options.registry_url is not None
    return SchemaRegistryClient(
        [each.strip() for each in options.registry_url.split(",")],
        username=options.registry_username,
        password=options.registry_password,
        token=options.registry_token,
    )
