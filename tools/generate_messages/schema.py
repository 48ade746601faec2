"""Reads `schema/` and refuses what the codec could not keep: the generator's idea of a message."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.protocol.notation import Field, NotationError, VersionRange, parse_field

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schema"

_NUMBERED = re.compile(r"^\d\d_")
_SNAKE_CASE = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")


class SchemaError(ValueError):
    """A schema file that says something impossible; the message names file and place."""


@dataclass(frozen=True, slots=True)
class StructSchema:
    """A struct: its name and the notation of its fields."""

    name: str
    notation: dict[str, str]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, parsed."""
        return tuple(parse_field(name, text) for name, text in self.notation.items())


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A message: what it is, its versions, its body and the structs inside."""

    name: str
    kind: str
    key: int | None
    versions: VersionRange
    released: VersionRange
    flexible: VersionRange
    doc: str
    body: StructSchema
    structs: tuple[StructSchema, ...]

    @property
    def carries_records(self) -> bool:
        """Whether record batches travel inside."""
        return any(f.type == "records" for s in (self.body, *self.structs) for f in s.fields)


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One file of the schema, which becomes one module."""

    path: str
    module: str
    api: str
    key: int
    family: str
    listeners: tuple[str, ...]
    flags: tuple[str, ...]
    messages: tuple[MessageSchema, ...]


def read_schema(folder: Path = SCHEMA) -> list[SchemaFile]:
    """Every file, those of the APIs first and in order of their keys."""
    paths = sorted(folder.rglob("*.toml"), key=lambda p: (p.parent.name != "messages", str(p)))
    files = [_read_file(path, folder) for path in paths]
    _require_unique([message.name for file in files for message in file.messages], "message")
    _require_unique([file.module for file in files], "module")
    return files


def _read_file(path: Path, folder: Path) -> SchemaFile:
    where = f"schema/{path.relative_to(folder).as_posix()}"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    shared = {name: value for name, value in document.items() if name not in tables}
    try:
        messages = tuple(_message(name, shared | table) for name, table in tables.items())
        _require_unique([s.name for m in messages for s in (m.body, *m.structs)], "struct")
    except (KeyError, ValueError) as error:
        raise SchemaError(f"{where}: {error}") from error
    return SchemaFile(
        path=where,
        module=_NUMBERED.sub("", path.stem),
        api=shared.get("api", ""),
        key=shared.get("key", -1),
        family=shared.get("family", ""),
        listeners=tuple(shared.get("listeners", ())),
        flags=tuple(shared.get("flags", ())),
        messages=messages,
    )


def _message(name: str, table: dict[str, Any]) -> MessageSchema:
    structs = tuple(_struct(key, value) for key, value in table.items() if key[0].isupper())
    message = MessageSchema(
        name=name,
        kind=table.get("kind") or ("request" if name.endswith("Request") else "response"),
        key=table.get("key"),
        versions=VersionRange.parse(table["versions"]),
        released=VersionRange.parse(table["released"]),
        flexible=VersionRange.parse(table["flexible"]),
        doc=table.get("doc", ""),
        body=_struct(name, table["fields"]),
        structs=structs,
    )
    _check(message)
    return message


def _struct(name: str, notation: dict[str, str]) -> StructSchema:
    struct = StructSchema(name, notation)
    for field in struct.fields:
        if not _SNAKE_CASE.match(field.name) or field.name == "unknown_tags":
            raise SchemaError(f"{name}.{field.name}: not a name for a field")
    return struct


def _check(message: MessageSchema) -> None:
    structs = {struct.name: struct for struct in message.structs}
    reached = _reach(message.body, structs, ())
    if unused := structs.keys() - reached:
        raise SchemaError(f"{message.name}: nothing refers to {sorted(unused)}")
    for struct in (message.body, *message.structs):
        tags = [field.tag for field in struct.fields if field.tag is not None]
        _require_unique([str(tag) for tag in tags], f"{struct.name} tag")
        for field in struct.fields:
            _check_field(message, struct, field)


def _check_field(message: MessageSchema, struct: StructSchema, field: Field) -> None:
    where = f"{struct.name}.{field.name}"
    if field.tag is not None and field.versions.lowest < message.flexible.lowest:
        raise SchemaError(f"{where}: a tag needs flexible versions")
    if field.tag is not None and field.type == "records":
        raise SchemaError(f"{where}: records do not travel in tags")
    nullable_tagged_struct = (
        field.is_nested_struct and field.tag is not None and field.nullable != (0, -1)
    )
    if nullable_tagged_struct and not field.has_null_default:
        raise SchemaError(f"{where}: a tagged struct that may be null must be null unless set")


def _reach(
    struct: StructSchema, structs: dict[str, StructSchema], above: tuple[str, ...]
) -> set[str]:
    """The structs that a struct contains. A cycle would let bytes decide how deep we recurse."""
    reached: set[str] = set()
    for field in struct.fields:
        if not field.is_struct:
            continue
        if field.type in above:
            raise SchemaError(f"{struct.name}.{field.name}: {field.type} contains itself")
        if field.type not in structs:
            raise SchemaError(f"{struct.name}.{field.name}: there is no struct {field.type}")
        reached |= {field.type} | _reach(structs[field.type], structs, (*above, field.type))
    return reached


def _require_unique(names: list[str], what: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SchemaError(f"{what} occurs twice: {', '.join(twice)}")


__all__ = [
    "MessageSchema",
    "NotationError",
    "SchemaError",
    "SchemaFile",
    "StructSchema",
    "read_schema",
]
