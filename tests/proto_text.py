"""A Protobuf file's descriptor as the text of a `.proto` file: what registries answer with.

Enough for tests: messages, enums, maps, imports. Options and services are left out.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_LABELS: Final = {_Field.LABEL_REPEATED: "repeated ", _Field.LABEL_REQUIRED: "required "}


def proto_text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The text."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    lines += [f"package {file.package};"] if file.package else []
    lines += [f'import "{each}";' for each in file.dependency]
    for message in file.message_type:
        lines += _message(message)
    for enum in file.enum_type:
        lines += _enum(enum)
    return "\n".join(lines) + "\n"


def _message(message: descriptor_pb2.DescriptorProto) -> list[str]:
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    inner = [_field(each, maps) for each in message.field]
    for nested in message.nested_type:
        if nested.name not in maps:
            inner += _message(nested)
    for enum in message.enum_type:
        inner += _enum(enum)
    return [f"message {message.name} {{", *[f"  {each}" for each in inner], "}"]


def _field(field: Any, maps: dict[str, descriptor_pb2.DescriptorProto]) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        key, value = (_type(each) for each in entry.field)
        return f"map<{key}, {value}> {field.name} = {field.number};"
    return f"{_LABELS.get(field.label, '')}{_type(field)} {field.name} = {field.number};"


def _type(field: Any) -> str:
    return field.type_name or _Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def _enum(enum: descriptor_pb2.EnumDescriptorProto) -> list[str]:
    values = [f"  {each.name} = {each.number};" for each in enum.value]
    return [f"enum {enum.name} {{", *values, "}"]
