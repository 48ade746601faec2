"""JSON with a JSON Schema in a registry, checked when written and when read.

A schema may be given as such, or come from a pydantic model or a type that msgspec knows; then the
model itself does the checking and readers get its objects.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urljoin

from millstream.client.serialization.json import JsonSerde
from millstream.client.serialization.models import MsgspecSerde, PydanticSerde
from millstream.client.serialization.packages import require
from millstream.client.serialization.references import referenced
from millstream.client.serialization.registry_serde import RegistrySerde
from millstream.client.serialization.schema_registry import Schema
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from millstream.client.serialization.base import Serde
    from millstream.client.serialization.schema_registry import SchemaRegistryClient

T = TypeVar("T")


class JsonSchemaSerde(RegistrySerde[T], Generic[T]):
    """JSON values of a schema, or objects of a model."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | dict[str, Any] | Schema | None = None,
        *,
        model: type[T] | None = None,
        validate: bool = True,
        **options: Any,
    ) -> None:
        """Give a schema, a model, or neither: then the subject's latest is taken for writing.

        `options` are those of `RegistrySerde`: subject_name, auto_register, use_latest, normalize.
        """
        super().__init__(registry, **options)
        if schema is not None and model is not None:
            raise InvalidArgument("JsonSchemaSerde takes a schema or a model, not both")
        self._validates = validate and model is None
        self._jsonschema = require("jsonschema", "JsonSchemaSerde") if self._validates else None
        self._plain: Serde[Any] = JsonSerde() if model is None else _serde_of(model)
        self._schema = _schema_of(model) if model is not None else _as_schema(schema)
        self._validators: dict[Schema, Any] = {}
        if self._validates and self._schema is not None:
            self._validator(self._schema)  # A faulty schema is told now.

    def _schema_of(self, value: T) -> Schema | None:
        return self._schema

    def _record_name(self, value: T) -> str:
        return "" if self._schema is None else str(json.loads(self._schema.text).get("title", ""))

    def _encode(self, value: T, schema: Schema) -> bytes:
        payload = self._plain.encode(value)
        if self._validates:
            self._validator(schema).validate(json.loads(payload))
        return payload

    def _decode(self, data: bytes, position: int, schema_id: int) -> Any:
        value = self._plain.decode(data[position:])
        if self._validates:
            self._validator(self._schema or self._registry.schema(schema_id)).validate(value)
        return value

    def _validator(self, schema: Schema) -> Any:
        validator = self._validators.get(schema)
        if validator is None:
            assert self._jsonschema is not None
            document = json.loads(schema.text)
            of_draft = self._jsonschema.validators.validator_for(document)
            of_draft.check_schema(document)
            own_address = document.get("$id", "") if isinstance(document, dict) else ""
            validator = of_draft(document, registry=self._referenced(schema, own_address))
            self._validators[schema] = validator
        return validator

    def _referenced(self, schema: Schema, own_address: str) -> Any:
        """What the schema refers to, by its name and by the address that this name stands for."""
        referencing = require("referencing", "JsonSchemaSerde")
        known = referencing.Registry()
        for name, found in referenced(self._registry, schema).items():
            resource = referencing.Resource.from_contents(
                json.loads(found.schema.text),
                default_specification=referencing.jsonschema.DRAFT7,
            )
            names = {name, urljoin(own_address, name)}
            known = known.with_resources((each, resource) for each in names)
        return known


def _serde_of(model: type[Any]) -> Serde[Any]:
    return PydanticSerde(model) if hasattr(model, "model_json_schema") else MsgspecSerde(model)


def _schema_of(model: Any) -> Schema:
    if hasattr(model, "model_json_schema"):
        document = model.model_json_schema()
    else:
        document = require("msgspec", "JsonSchemaSerde").json.schema(model)
    return Schema(json.dumps(document), "JSON")


def _as_schema(given: str | dict[str, Any] | Schema | None) -> Schema | None:
    if given is None or isinstance(given, Schema):
        return given
    return Schema(given if isinstance(given, str) else json.dumps(given), "JSON")
