"""Avro with a schema registry, through fastavro.

Writers' schemas come from the registry and are resolved to the reader's schema if one was given.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.client.serialization.packages import require
from millstream.client.serialization.references import referenced
from millstream.client.serialization.registry_serde import RegistrySerde
from millstream.client.serialization.schema_registry import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.serialization.schema_registry import SchemaRegistryClient

T = TypeVar("T")


class AvroSerde(RegistrySerde[T], Generic[T]):
    """Values of an Avro schema: dictionaries, or objects with `to_dict` and `from_dict`."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | dict[str, Any] | Schema | None = None,
        *,
        reader_schema: str | dict[str, Any] | Schema | None = None,
        to_dict: Callable[[T], Any] | None = None,
        from_dict: Callable[[Any], T] | None = None,
        **options: Any,
    ) -> None:
        """Without a schema, values are written with the subject's latest.

        `options` are those of `RegistrySerde`: subject_name, auto_register, use_latest, normalize.
        """
        super().__init__(registry, **options)
        self._fastavro = require("fastavro", "AvroSerde")
        self._schema = _as_schema(schema)
        self._to_dict = to_dict
        self._from_dict = from_dict
        self._parsed: dict[Schema, Any] = {}
        reader = _as_schema(reader_schema)
        self._reader_schema = None if reader is None else self._parse(reader)
        if self._schema is not None:
            self._parse(self._schema)  # A faulty schema is told now, not at the first record.

    def _schema_of(self, value: T) -> Schema | None:
        return self._schema

    def _record_name(self, value: T) -> str:
        if self._schema is None:
            return ""
        parsed = self._parse(self._schema)
        return str(parsed.get("name", "")) if isinstance(parsed, dict) else ""

    def _encode(self, value: T, schema: Schema) -> bytes:
        plain = value if self._to_dict is None else self._to_dict(value)
        out = io.BytesIO()
        self._fastavro.schemaless_writer(out, self._parse(schema), plain)
        return out.getvalue()

    def _decode(self, data: bytes, position: int, schema_id: int) -> Any:
        writer = self._parse(self._registry.schema(schema_id))
        stream = io.BytesIO(data)
        stream.seek(position)
        plain = self._fastavro.schemaless_reader(stream, writer, self._reader_schema)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over")
        return plain if self._from_dict is None else self._from_dict(plain)

    def _parse(self, schema: Schema) -> Any:
        parsed = self._parsed.get(schema)
        if parsed is None:
            named: dict[str, Any] = {}
            for name, imported in referenced(self._registry, schema).items():
                if name not in named:
                    text = imported.schema.text
                    self._fastavro.parse_schema(_as_object(text), named_schemas=named)
            written = _as_object(schema.text)
            # A parsed record carries the names it refers to; a union or an array does not.
            is_record = isinstance(written, dict) and written.get("type") == "record"
            parsed = self._fastavro.parse_schema(
                written, named_schemas=named, expand=bool(named) and not is_record
            )
            self._parsed[schema] = parsed
        return parsed


def _as_object(schema: str | dict[str, Any]) -> Any:
    if not isinstance(schema, str):
        return schema
    text = schema.strip()
    # A primitive may be registered as a bare word, without the quotes that JSON wants.
    return json.loads(text) if text[:1] in '{["' else text


def _as_schema(given: str | dict[str, Any] | Schema | None) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    return Schema(given if isinstance(given, str) else json.dumps(given), "AVRO")
