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

from millstream.client.serialization.schema_registry import SchemaRegistryClient
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

_REGISTRY_FRAME_BYTES: Final = 5


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
    text = _schema_text(parsed)
    value_type = _given_type(schema)
    if value_type is None:
        value_type = _type_of_text(parsed, text)
    return Decoder(parsed, value_type, text or "", dict(client or {}))


class Decoder:
    """Turns the column `value` of batches from bytes into a struct."""

    def __init__(
        self,
        options: DecodingOptions,
        value_type: StructType,
        schema_text: str,
        client: Mapping[str, str],
    ) -> None:
        self._options = options
        self._value_type = value_type
        self._schema_text = schema_text
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
        match options.value_format:
            case "avro":
                from millstream.spark.decoding.avro_values import AvroValues

                registry = _registry(options) if options.registry_url else None
                return AvroValues(arrow_type, self._schema_text, registry)
            case "protobuf":
                from millstream.spark.decoding.protobuf_values import ProtobufValues

                return ProtobufValues(
                    arrow_type,
                    self._schema_text,
                    options.value_message,
                    is_framed=options.registry_url is not None,
                )
        from millstream.spark.decoding.json_values import JsonValues

        return JsonValues(arrow_type, _REGISTRY_FRAME_BYTES if options.registry_url else 0)

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


def _schema_text(options: DecodingOptions) -> str | None:
    """The schema that was given, or the latest of the registry's subject."""
    given = options.schema_text()
    if given is not None or options.value_subject is None:
        return given
    return _registry(options).version(options.value_subject).schema.text


def _type_of_text(options: DecodingOptions, text: str | None) -> StructType:
    if text is None:
        raise InvalidArgument(
            f"valueFormat={options.value_format} needs valueSchema, valueSchemaFile, or "
            "schemaRegistryUrl and valueSubject"
        )
    match options.value_format:
        case "avro":
            from millstream.spark.decoding.avro_values import avro_type

            return avro_type(text)
        case "protobuf":
            from millstream.spark.decoding.protobuf_values import protobuf_type

            return protobuf_type(text, options.value_message)
    if text.lstrip().startswith("{"):
        from millstream.spark.decoding.json_schema import json_schema_type

        return json_schema_type(text)
    from millstream.spark.decoding.ddl import parse_ddl

    return parse_ddl(text)


def _registry(options: DecodingOptions) -> SchemaRegistryClient:
    assert options.registry_url is not None
    return SchemaRegistryClient(
        [each.strip() for each in options.registry_url.split(",")],
        username=options.registry_username,
        password=options.registry_password,
        token=options.registry_token,
    )
