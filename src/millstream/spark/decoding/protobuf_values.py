"""Protobuf to columns: messages of a descriptor that `protoc` has written, no generated code.

With a schema registry an id and a path stand before each message. They are looked up once each, to
see that it is the message that was named; the bytes are read as that message, because Protobuf
reads what it knows of any version.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as T

from millstream.client.serialization.framing import decode_indexes, unframe
from millstream.client.serialization.packages import require
from millstream.client.serialization.protobuf_files import (
    file_of,
    files_of,
    message_names,
    pool_of,
)
from millstream.errors import InvalidArgument, SchemaRegistryError, SerializationFailed
from millstream.spark.decoding.formats import Faults, ValueFormat, decode_each

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.client.serialization.schema_registry import (
        RegisteredSchema,
        SchemaRegistryClient,
    )

# Numbers of FieldDescriptor.CPPTYPE_*. Unsigned ones get the next type that holds them.
_BY_KIND: Final[dict[int, T.DataType]] = {
    1: T.IntegerType(),
    2: T.LongType(),
    3: T.LongType(),
    4: T.DecimalType(20, 0),
    5: T.DoubleType(),
    6: T.FloatType(),
    7: T.BooleanType(),
    8: T.StringType(),
}
_STRING_KIND, _MESSAGE_KIND, _ENUM_KIND, _UINT64_KIND = 9, 10, 8, 4
_BYTES_TYPE: Final = 12
_LABEL_REPEATED: Final = 3
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DEPTH_MAX: Final = 32
_HEADS_MAX: Final = 1_000


class ProtobufValues(ValueFormat):
    """Values of one message."""

    def __init__(
        self,
        arrow_type: pa.StructType,
        descriptors: str,
        message: str | None,
        registry: SchemaRegistryClient | None = None,
    ) -> None:
        self._type = arrow_type
        descriptor = _message_of(descriptors, message)
        from google.protobuf import message_factory

        self._message_class = message_factory.GetMessageClass(descriptor)
        self._getter = _message_getter(descriptor)
        self._name = str(descriptor.full_name)
        self._registry = registry
        self._names_of_heads: dict[bytes, set[str]] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        """A struct for each message."""
        return decode_each(values.to_pylist(), self._read, self._type)

    def _read(self, data: bytes) -> Any:
        if self._registry is not None:
            data = self._payload(data, self._registry)
        return self._getter(self._message_class.FromString(data))

    def _payload(self, data: bytes, registry: SchemaRegistryClient) -> bytes:
        """What stands behind the frame, if that says that it is our message."""
        schema_id, position = unframe(data)
        path, position = decode_indexes(data, position)
        head = data[:position]
        names = self._names_of_heads.get(head)
        if names is None:
            names = message_names(file_of(registry.schema(schema_id, serialized=True)), path)
            if len(self._names_of_heads) >= _HEADS_MAX:
                self._names_of_heads.clear()
            self._names_of_heads[head] = names
        if self._name not in names:
            raise SerializationFailed(
                f"it was written as {min(names)} (schema {schema_id}), not as {self._name}"
            )
        return data[position:]


def protobuf_type(descriptors: str, message: str | None) -> T.StructType:
    """The columns of a message."""
    return _struct_of(_message_of(descriptors, message), 0)


def descriptors_of_subject(registry: SchemaRegistryClient, registered: RegisteredSchema) -> str:
    """A registered file and those that it imports, as a descriptor set in base64."""
    require("google.protobuf", "valueFormat=protobuf", distribution="protobuf")
    from google.protobuf import descriptor_pb2

    try:
        files = files_of(registry, registered)
    except SchemaRegistryError:
        raise
    except SerializationFailed as error:
        raise InvalidArgument(f"subject {registered.subject!r}: {error}") from error
    content = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return base64.b64encode(content).decode("ascii")


def _message_of(descriptors: str, message: str | None) -> Any:
    """The descriptor of a message among those of a file descriptor set, or of one file."""
    require("google.protobuf", "valueFormat=protobuf", distribution="protobuf")
    files = _files(descriptors)
    pool = pool_of(files)
    name = message or _first_message(files)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise InvalidArgument(f"valueMessage={name!r}: no such message: {error}") from error


def _files(descriptors: str) -> list[Any]:
    """A set of files as protoc writes it, or one file alone."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        content = base64.b64decode(descriptors, validate=True)
        try:
            return list(descriptor_pb2.FileDescriptorSet.FromString(content).file)
        except DecodeError:
            return [descriptor_pb2.FileDescriptorProto.FromString(content)]
    except (binascii.Error, DecodeError, ValueError) as error:
        raise InvalidArgument(
            "the protobuf schema is no descriptor set in base64: write one with "
            "protoc --include_imports --descriptor_set_out=FILE and give valueSchemaFile=FILE"
        ) from error


def _first_message(files: list[Any]) -> str:
    last = files[-1] if files else None
    if last is None or not last.message_type:
        raise InvalidArgument("the protobuf schema has no message")
    name = str(last.message_type[0].name)
    return f"{last.package}.{name}" if last.package else name


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_repeated(field: Any) -> bool:
    # Protobuf 5 has the label only, 7 the predicate only.
    found = getattr(field, "is_repeated", None)
    return bool(field.label == _LABEL_REPEATED if found is None else found)


def _struct_of(descriptor: Any, depth: int) -> T.StructType:
    if depth > _DEPTH_MAX:
        raise InvalidArgument(f"{descriptor.full_name} is nested too deep, or contains itself")
    return T.StructType(
        [T.StructField(field.name, _type_of(field, depth)) for field in descriptor.fields]
    )


def _type_of(field: Any, depth: int) -> T.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return T.MapType(_single_type(entry["key"], depth), _single_type(entry["value"], depth))
    single = _single_type(field, depth)
    return T.ArrayType(single) if _is_repeated(field) else single


def _single_type(field: Any, depth: int) -> T.DataType:
    if field.cpp_type == _MESSAGE_KIND:
        if field.message_type.full_name == _TIMESTAMP:
            return T.TimestampType()
        return _struct_of(field.message_type, depth + 1)
    if field.cpp_type == _STRING_KIND:
        return T.BinaryType() if field.type == _BYTES_TYPE else T.StringType()
    return _BY_KIND[field.cpp_type]


def _message_getter(descriptor: Any) -> Callable[[Any], Any]:
    """A function from a message to a dictionary, put together once."""
    fields = [(field.name, _field_getter(field)) for field in descriptor.fields]
    return lambda message: {name: get(message) for name, get in fields}


def _field_getter(field: Any) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        convert = _single_getter(field.message_type.fields_by_name["value"])
        return lambda message: [(k, convert(v)) for k, v in getattr(message, name).items()]
    convert = _single_getter(field)
    if _is_repeated(field):
        return lambda message: [convert(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _single_getter(field: Any) -> Callable[[Any], Any]:
    if field.cpp_type == _MESSAGE_KIND:
        if field.message_type.full_name == _TIMESTAMP:
            from datetime import UTC

            return lambda value: value.ToDatetime(tzinfo=UTC)
        return _message_getter(field.message_type)
    if field.cpp_type == _ENUM_KIND:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda value: names.get(value, str(value))
    if field.cpp_type == _UINT64_KIND:
        from decimal import Decimal

        return Decimal
    return lambda value: value
