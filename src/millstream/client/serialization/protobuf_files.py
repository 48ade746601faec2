"""Protobuf files as descriptors: from a registry or from protoc, with all that they import.

A registry keeps the text of a `.proto` file; asked for the serialized form, it gives the descriptor
that is read here. No text is parsed and no code generated. `ProtobufSerde` needs none of this: it
has a class; Spark has not.
"""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from millstream.client.serialization.references import referenced
from millstream.errors import InvalidArgument, SerializationFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.client.serialization.schema_registry import (
        RegisteredSchema,
        Schema,
        SchemaRegistryClient,
    )

KIND: Final = "PROTOBUF"
KNOWN_TO_ALL: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that implementations bring along: registries have no references for them."""

_OF_OPTIONS: Final = "confluent/"
"""Confluent's files have options of fields, which say nothing about bytes."""
_ROOT_NAME: Final = "default"
"""A registry does not keep the name of a file, only the names under which others import it."""


def files_of(registry: SchemaRegistryClient, registered: RegisteredSchema) -> list[Any]:
    """The files of a registered schema: what it imports, and itself last."""
    # By their ids: not every registry has a serialized form of versions.
    imported = referenced(registry, registered.schema)
    named = [(name, each.id) for name, each in imported.items()]
    files = []
    for name, schema_id in (*named, (_ROOT_NAME, registered.id)):
        file = file_of(registry.schema(schema_id, serialized=True))
        file.name = name
        files.append(file)
    return files


def file_of(schema: Schema) -> Any:
    """The descriptor in a registry's serialized answer; SerializationFailed if there is none."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if schema.kind != KIND:
        raise SerializationFailed(f"the schema is of {schema.kind}, not of {KIND}")
    try:
        content = base64.b64decode(schema.text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(content)
    except (binascii.Error, DecodeError, ValueError) as error:
        raise SerializationFailed(
            "the registry has no serialized form of the Protobuf schema (it does not know "
            "format=serialized); a descriptor set of protoc's serves instead"
        ) from error


def pool_of(files: Iterable[Any]) -> Any:
    """A pool with files in any order, and what they import of those that everybody has."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    by_name = {file.name: file for file in files}
    added: set[str] = set()
    for name in by_name:
        _add(pool, name, by_name, added)
    return pool


def message_names(file: Any, path: Sequence[int]) -> set[str]:
    """The full name of the message at the indexes that stand before a framed message.

    Inside of messages there may be two: some clients count the entries of maps, which descriptors
    have among the nested messages, and others do not.
    """
    found = [_message_name(file, path, counts_maps=each) for each in (True, False)]
    names = {each for each in found if each is not None}
    if not names:
        raise SerializationFailed(f"the schema has no message at the indexes {list(path)}")
    return names


def _message_name(file: Any, path: Sequence[int], *, counts_maps: bool) -> str | None:
    names = [file.package] if file.package else []
    siblings = list(file.message_type)
    for index in path:
        if not 0 <= index < len(siblings):
            return None
        message = siblings[index]
        names.append(message.name)
        nested = message.nested_type
        siblings = [each for each in nested if counts_maps or not each.options.map_entry]
    return ".".join(names)


def _add(pool: Any, name: str, files: dict[str, Any], added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    file = files.get(name)
    if file is None:
        file = _brought_along(name)
    for imported in list(file.dependency):
        if imported.startswith(_OF_OPTIONS) and imported not in files:
            file.dependency.remove(imported)
        else:
            _add(pool, imported, files, added)
    try:
        pool.Add(file)
    except TypeError as error:  # Protobuf's own name for a file that does not fit.
        raise InvalidArgument(f"the protobuf schema {name}: {error}") from error


def _brought_along(name: str) -> Any:
    """A file that is installed with protobuf itself, or with Google's common ones."""
    from google.protobuf import descriptor_pb2

    # Only Google's: what a registry answers must not decide on what is imported here.
    if name.startswith("google/") and name.startswith(KNOWN_TO_ALL):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            content = import_module(module).DESCRIPTOR.serialized_pb
        except ImportError:
            pass
        else:
            return descriptor_pb2.FileDescriptorProto.FromString(content)
    raise InvalidArgument(
        f"the protobuf schema imports {name}, which is not there: register it as a reference, or "
        "write a descriptor set with protoc --include_imports"
    )
