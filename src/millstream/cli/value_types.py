"""What keys and values are besides bytes: `--key-type`, `--value-type`, and their schemas.

A type is a serializer of the client library by its name, or `avro` and `jsonschema`, which need a
schema registry. Text becomes a value on the way in, a value becomes text or JSON on the way out.
`produce` and `consume` ask here; nothing here sends or reads records.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.config.parsing import nearest_key
from millstream.errors import SerializationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.cli.record_format import AnyRecord
    from millstream.cli.record_text import NewRecord
    from millstream.types import Headers

REGISTRY_VARIABLE: Final = "MILLSTREAM_SCHEMA_REGISTRY"
BYTES: Final = "bytes"
_WITH_REGISTRY: Final = ("avro", "jsonschema")
_NUMBERS: Final = {"int": int, "float": float}
TYPES: Final = (
    BYTES, "str", "json", "int16", "int32", "int64", "float32", "float64", "uuid", *_WITH_REGISTRY,
)  # fmt: skip

_LISTED: Final = ", ".join(TYPES)
KeyType = Annotated[
    str, typer.Option("--key-type", metavar="TYPE", help=f"What keys are: {_LISTED}.")
]
ValueType = Annotated[
    str, typer.Option("--value-type", metavar="TYPE", help="What values are, likewise.")
]
KeySchema = Annotated[
    Path | None,
    typer.Option("--key-schema", metavar="FILE", help="The schema of new keys; else the latest."),
]
ValueSchema = Annotated[
    Path | None,
    typer.Option(
        "--value-schema", metavar="FILE", help="The schema of new values; else the latest."
    ),
]
RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        envvar=REGISTRY_VARIABLE,
        help="Where schemas are; for avro and jsonschema.",
    ),
]


class TypedRecord(NamedTuple):
    """A record whose key and value were read: text or what is written as JSON, not always bytes."""

    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


class Side:
    """The type of all keys, or of all values."""

    def __init__(
        self, name: str, registry: str | None, schema: Path | None = None, *, is_key: bool
    ) -> None:
        self._option = "--key-type" if is_key else "--value-type"
        if name not in TYPES:
            nearest = nearest_key(name, TYPES)
            meant = f"; did you mean {nearest}?" if nearest else "."
            raise UsageFault(f"{self._option} {name} means nothing{meant} There are {_LISTED}")
        self.name = name
        self._serde = _serde(name, registry, schema, is_key=is_key)
        self._parse = _parser(name)

    @property
    def is_plain(self) -> bool:
        """Whether bytes stay as they are."""
        return self.name == BYTES

    def encode(self, topic: str, text: bytes | None) -> bytes | None:
        """The bytes of what a text says."""
        if text is None:
            return None
        try:
            value = self._parse(text)
        except ValueError as error:
            shown = text.decode(errors="replace")[:60]
            raise UsageFault(f"{self._option} {self.name}: {shown!r}: {error}") from error
        data: bytes | None = self._serde.serialize(topic, value, [])
        return data

    def decode(self, topic: str, data: bytes | None, headers: Headers) -> Any:
        """What bytes mean."""
        return self._serde.deserialize(topic, data, headers)


class Sides(NamedTuple):
    """The types of keys and values."""

    key: Side
    value: Side

    @property
    def are_plain(self) -> bool:
        """Whether nothing has to be done."""
        return self.key.is_plain and self.value.is_plain

    def encoded(self, topic: str, record: NewRecord) -> NewRecord:
        """A record with the bytes of its key and value."""
        return record._replace(
            key=self.key.encode(topic, record.key), value=self.value.encode(topic, record.value)
        )

    def decoded(self, topic: str, partition: int, record: AnyRecord) -> TypedRecord:
        """A record with what its key and value mean; says which one cannot be read."""
        headers = record.headers
        try:
            key = self.key.decode(topic, record.key, headers)
            value = self.value.decode(topic, record.value, headers)
        except SerializationFailed as error:
            raise CommandFailed(
                f"{topic}-{partition} at offset {record.offset}: {error}; "
                "--value-type bytes prints it as it is"
            ) from error
        return TypedRecord(record.offset, record.timestamp, key, value, headers)


def as_text(record: TypedRecord) -> TypedRecord:
    """The same with key and value as bytes to print: what is no text becomes JSON."""
    return record._replace(key=_text(record.key), value=_text(record.value))


def as_json(record: TypedRecord) -> TypedRecord:
    """The same with key and value as JSON can have them."""
    return record._replace(key=_plain(record.key), value=_plain(record.value))


def make_sides(
    key_type: str,
    value_type: str,
    registry: str | None,
    key_schema: Path | None = None,
    value_schema: Path | None = None,
) -> Sides:
    """Both types, from a command's options."""
    return Sides(
        Side(key_type, registry, key_schema, is_key=True),
        Side(value_type, registry, value_schema, is_key=False),
    )


def _serde(name: str, registry: str | None, schema: Path | None, *, is_key: bool) -> Any:
    side = "key" if is_key else "value"
    if name not in _WITH_REGISTRY:
        if schema is not None:
            raise UsageFault(f"--{side}-schema goes with --{side}-type avro or jsonschema")
        from millstream.client.serialization.resolution import SERDES_BY_NAME

        return SERDES_BY_NAME[name]()
    if not registry:
        raise UsageFault(
            f"--{side}-type {name} needs --schema-registry URL, or {REGISTRY_VARIABLE} set"
        )
    from millstream.client.serialization.schema_registry import SchemaRegistryClient

    made: Any
    if name == "avro":
        from millstream.client.serialization.avro import AvroSerde as made
    else:
        from millstream.client.serialization.json_schema import JsonSchemaSerde as made
    return made(SchemaRegistryClient(registry), _read(schema)).for_side(is_key=is_key)


def _read(schema: Path | None) -> str | None:
    if schema is None:
        return None
    try:
        return schema.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read the schema {schema}: {error}") from error


def _parser(name: str) -> Callable[[bytes], Any]:
    if name == BYTES:
        return lambda text: text
    if name == "avro":
        return lambda text: json.loads(text, object_hook=_bytes_of)
    if name in ("json", "jsonschema"):
        return json.loads
    for prefix, number in _NUMBERS.items():
        if name.startswith(prefix):
            return lambda text: number(text.decode())
    if name == "uuid":
        from uuid import UUID

        return lambda text: UUID(text.decode())
    return bytes.decode


def _text(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):  # As text, and read back as such, also `NaN`.
        return json.dumps(value).encode()
    return json.dumps(_plain(value), ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    """As JSON can have it: bytes at the top stay for the encoding, inside they become base64.

    JSON has no number for what is none or without end: they are the strings "NaN", "Infinity"
    and "-Infinity", as Protobuf and Avro write them.
    """
    if value is None or isinstance(value, bytes | str | bool | int):
        return value
    return json.loads(
        json.dumps(value, ensure_ascii=False, default=_simple), parse_constant=lambda name: name
    )


def _bytes_of(found: dict[str, Any]) -> Any:
    """Bytes inside a value are written as they are printed: `{"base64": …}`."""
    match found:
        case {"base64": str(encoded), **rest} if not rest:
            return base64.b64decode(encoded, validate=True)
    return found


def _simple(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, set | frozenset | tuple):
        items: Iterable[Any] = value
        return list(items)
    return str(value)
