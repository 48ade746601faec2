"""Protobuf with a schema registry: generated message classes in, messages out.

The registry gets each file's descriptor, and those of the files it imports as references, in the
form that Confluent's own clients send.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.client.serialization.framing import decode_indexes, encode_indexes
from millstream.client.serialization.packages import require
from millstream.client.serialization.protobuf_files import KNOWN_TO_ALL
from millstream.client.serialization.registry_serde import RegistrySerde
from millstream.client.serialization.schema_registry import Reference, Schema
from millstream.errors import SerializationFailed

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from millstream.client.serialization.schema_registry import SchemaRegistryClient

M = TypeVar("M", bound="Message")


class ProtobufSerde(RegistrySerde[M]):
    """Messages of one generated class."""

    def __init__(
        self, registry: SchemaRegistryClient, message_type: type[M], **options: Any
    ) -> None:
        """`options` are those of `RegistrySerde`: subject_name, auto_register, use_latest."""
        super().__init__(registry, **options)
        require("google.protobuf", "ProtobufSerde", distribution="protobuf")
        self._message_type = message_type
        self._path = encode_indexes(_path_of(message_type.DESCRIPTOR))

    def _schema_of(self, value: M) -> Schema | None:
        return self._schema_of_file(self._message_type.DESCRIPTOR.file)

    def _record_name(self, value: M) -> str:
        return str(self._message_type.DESCRIPTOR.full_name)

    def _indexes(self, value: M) -> bytes:
        return self._path

    def _encode(self, value: M, schema: Schema) -> bytes:
        if not isinstance(value, self._message_type):
            raise TypeError(f"not a {self._message_type.DESCRIPTOR.full_name}")
        return value.SerializeToString()

    def _decode(self, data: bytes, position: int, schema_id: int) -> Any:
        _, start = decode_indexes(data, position)
        message = self._message_type()
        message.ParseFromString(data[start:])
        return message

    def _schema_of_file(self, file: Any) -> Schema:
        references = tuple(
            self._reference(imported)
            for imported in file.dependencies
            if not imported.name.startswith(KNOWN_TO_ALL)
        )
        text = base64.standard_b64encode(file.serialized_pb).decode("ascii")
        return Schema(text, "PROTOBUF", references)

    def _reference(self, file: Any) -> Reference:
        """Where an imported file is registered, under its own name as subject."""
        schema = self._schema_of_file(file)
        if self._auto_register:
            self._registry.register(file.name, schema)
        found = self._registry.lookup(file.name, schema)
        return Reference(file.name, file.name, found.version)


def _path_of(message: Any) -> list[int]:
    """Which message of the file, which message within that, and so on."""
    path: list[int] = []
    inner = message
    while inner.containing_type is not None:
        path.insert(0, _index_of(inner, list(inner.containing_type.nested_types)))
        inner = inner.containing_type
    path.insert(0, _index_of(inner, list(inner.file.message_types_by_name.values())))
    return path


def _index_of(message: Any, siblings: list[Any]) -> int:
    for index, sibling in enumerate(siblings):
        if sibling.full_name == message.full_name:
            return index
    raise SerializationFailed(f"{message.full_name} is not in its own file's descriptor")
