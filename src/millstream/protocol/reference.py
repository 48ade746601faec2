"""The codec, slow and obvious: one walk over the layout, one check a line.

When the compiled codec fails, this one does the same work again, knows at every moment where it
is, and raises the error that says so. In tests it is the second opinion: both must agree on every
message and on every piece of garbage. It never runs when all is well.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from millstream.errors import DecodeError, EncodeError
from millstream.protocol import primitives
from millstream.protocol.decoding import FORMATS
from millstream.protocol.layout import FieldLayout, StructLayout, is_default, layout_of
from millstream.protocol.notation import FIXED_SIZES
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from millstream.protocol.message import Message, Struct
    from millstream.types import ReadableBuffer


def decode(
    cls: type[Message], buffer: ReadableBuffer, version: int, position: int, *, whole: bool = True
) -> tuple[Message, int]:
    """Read a message; unless `whole` is False, nothing may follow it."""
    walk = _DecodeWalk(cls.__name__, version, buffer, position)
    message: Any = walk.struct(layout_of(cls, version), "")
    if whole and walk.position != len(buffer):
        walk.fail(f"{len(buffer) - walk.position} bytes follow the last field", "")
    return message, walk.position


class _DecodeWalk:
    def __init__(self, message: str, version: int, buffer: ReadableBuffer, position: int) -> None:
        self._message = message
        self._version = version
        self._buffer = buffer
        self.position = position

    def fail(self, problem: str, field: str, position: int | None = None) -> NoReturn:
        raise DecodeError(
            problem,
            message=self._message,
            version=self._version,
            field=field,
            position=self.position if position is None else position,
        )

    def struct(self, layout: StructLayout, path: str) -> Struct:
        made = layout.cls()
        for bound in layout.fields:
            setattr(made, bound.name, self._value(bound, _join(path, bound.name)))
        if layout.is_flexible:
            self._tagged_section(layout, made, path)
        return made

    def _tagged_section(self, layout: StructLayout, made: Struct, path: str) -> None:
        known = {bound.field.tag: bound for bound in layout.tagged}
        unknown: list[tuple[int, bytes]] = []
        last_tag = -1
        for _ in range(self._read(primitives.read_uvarint, _join(path, "tag count"))):
            where = _join(path, "tag")
            start = self.position
            tag = self._read(primitives.read_uvarint, where)
            size = self._read(primitives.read_uvarint, where)
            if tag <= last_tag:
                self.fail(f"tag {tag} comes after tag {last_tag}", where, start)
            last_tag = tag
            end = self.position + size
            if tag not in known:
                unknown.append((tag, self._take(size, _join(path, f"tag {tag}"))))
                continue
            bound = known[tag]
            where = _join(path, bound.name)
            if end > len(self._buffer):
                self._take(size, where)
            setattr(made, bound.name, self._tagged_value(bound, where))
            if self.position != end:
                self.fail(
                    f"tag {tag} says {size} bytes but has {size + self.position - end}", where
                )
        made.unknown_tags = tuple(unknown)

    def _tagged_value(self, bound: FieldLayout, path: str) -> object:
        if bound.field.is_nested_struct and bound.is_nullable:
            start = self.position
            presence = self._read(primitives.read_uvarint, path)
            if presence > 1:
                self.fail(f"presence is {presence}, not 0 or 1", path, start)
            return self._value(bound._replace(is_nullable=False), path) if presence else None
        return self._value(bound, path)

    def _value(self, bound: FieldLayout, path: str) -> object:
        if bound.field.is_array:
            return self._array(bound, path)
        return self._element(bound, path)

    def _element(self, bound: FieldLayout, path: str) -> object:
        type_name = bound.field.type
        if bound.struct is not None:
            return self._struct_or_null(bound, bound.struct, path)
        if type_name in FIXED_SIZES:
            return self._fixed(type_name, path)
        start = self.position
        length = self._length(bound, 2 if type_name == "string" else 4, path)
        if length is None:
            return None
        if type_name == "string":
            if length > primitives.STRING_BYTES_MAX:
                self.fail(f"string of {length} bytes", path, start)
            raw = self._take(length, path)
            return self._read(lambda _buffer, at: (primitives.decode_utf8(raw, at), at), path)
        if type_name == "records":
            self._require(length, path)
            self.position += length
            return memoryview(self._buffer)[self.position - length : self.position]
        return self._take(length, path)

    def _array(self, bound: FieldLayout, path: str) -> list[object] | None:
        start = self.position
        count = self._length(bound, 4, path)
        if count is None:
            return None
        left = len(self._buffer) - self.position
        if count * bound.element_size_min > left:
            self.fail(f"{count} elements cannot fit in the {left} bytes left", path, start)
        element = bound._replace(is_nullable=False)
        return [self._element(element, f"{path}[{index}]") for index in range(count)]

    def _struct_or_null(self, bound: FieldLayout, layout: StructLayout, path: str) -> object:
        if bound.is_nullable:
            start = self.position
            presence = self._fixed("int8", path)
            if presence == -1:
                return None
            if presence != 1:
                self.fail(f"presence is {presence}, not -1 or 1", path, start)
        return self.struct(layout, path)

    def _length(self, bound: FieldLayout, width: int, path: str) -> int | None:
        start = self.position
        if bound.is_compact:
            length = self._read(primitives.read_uvarint, path) - 1
        else:
            length = int.from_bytes(self._take(width, path), "big", signed=True)
        if length < -1:
            self.fail(f"length is {length}", path, start)
        if length == -1 and not bound.is_nullable:
            self.fail("null is not allowed here", path, start)
        return None if length == -1 else length

    def _fixed(self, type_name: str, path: str) -> object:
        raw = self._take(FIXED_SIZES[type_name], path)
        if type_name == "uuid":
            return Uuid(raw)
        value: object = struct.unpack(">" + FORMATS[type_name], raw)[0]
        return value

    def _take(self, length: int, path: str) -> bytes:
        self._require(length, path)
        raw = bytes(self._buffer[self.position : self.position + length])
        self.position += length
        return raw

    def _require(self, length: int, path: str) -> None:
        left = max(0, len(self._buffer) - self.position)
        if length > left:
            self.fail(f"truncated: {length} bytes needed, {left} left", path)

    def _read(self, reader: Callable[[ReadableBuffer, int], tuple[Any, int]], path: str) -> Any:
        try:
            value, self.position = reader(self._buffer, self.position)
        except DecodeError as error:
            self.fail(error.problem, path)
        return value


def encode(message: Message, version: int) -> bytes:
    """Write a message, or name the value that the version cannot carry."""
    walk = _EncodeWalk(type(message).__name__, version)
    return walk.struct(layout_of(type(message), version), message, "")


class _EncodeWalk:
    def __init__(self, message: str, version: int) -> None:
        self._message = message
        self._version = version

    def _fail(self, problem: str, field: str) -> NoReturn:
        raise EncodeError(problem, message=self._message, version=self._version, field=field)

    def struct(self, layout: StructLayout, value: object, path: str) -> bytes:
        cls = layout.cls
        if not isinstance(value, cls):
            self._fail(f"a {cls.__name__} is needed, not {_describe(value)}", path)
        for field in layout.absent:
            given = getattr(value, field.name)
            if not field.is_ignorable and not is_default(cls, field, given):
                self._fail(
                    f"{_describe(given)} is set but the version has no such field",
                    _join(path, field.name),
                )
        if value.unknown_tags and not layout.is_flexible:
            self._fail("the version has no tagged fields", _join(path, "unknown_tags"))
        parts = [
            self._value(bound, getattr(value, bound.name), _join(path, bound.name))
            for bound in layout.fields
        ]
        if layout.is_flexible:
            parts.append(self._tagged_section(layout, value, path))
        return b"".join(parts)

    def _tagged_section(self, layout: StructLayout, value: Struct, path: str) -> bytes:
        tags: dict[int, bytes] = {}
        for bound in layout.tagged:
            given = getattr(value, bound.name)
            if not is_default(layout.cls, bound.field, given):
                tags[bound.field.tag or 0] = self._tagged_value(
                    bound, given, _join(path, bound.name)
                )
        known = {bound.field.tag for bound in layout.tagged}
        where = _join(path, "unknown_tags")
        for tag, data in value.unknown_tags:
            if tag in known or tag in tags:
                self._fail(f"tag {tag} is taken", where)
            if not isinstance(data, bytes | bytearray | memoryview):
                self._fail(f"tag {tag} needs bytes, not {_describe(data)}", where)
            tags[tag] = bytes(data)
        parts = [primitives.encode_uvarint(len(tags))]
        for tag, data in sorted(tags.items()):
            parts += [self._uvarint(tag, where), self._uvarint(len(data), where), data]
        return b"".join(parts)

    def _tagged_value(self, bound: FieldLayout, value: object, path: str) -> bytes:
        if bound.field.is_nested_struct and bound.is_nullable:
            return b"\x01" + self._value(bound._replace(is_nullable=False), value, path)
        return self._value(bound, value, path)

    def _value(self, bound: FieldLayout, value: Any, path: str) -> bytes:
        if value is None and not bound.is_nullable:
            self._fail("null is not allowed here", path)
        if not bound.field.is_array:
            return self._element(bound, value, path)
        if value is None:
            return self._length(bound, None, 4, path)
        try:
            count = len(value)
        except TypeError:
            self._fail(f"a list is needed, not {_describe(value)}", path)
        element = bound._replace(is_nullable=False)
        return self._length(bound, count, 4, path) + b"".join(
            self._element(element, each, f"{path}[{index}]") for index, each in enumerate(value)
        )

    def _element(self, bound: FieldLayout, value: Any, path: str) -> bytes:
        type_name = bound.field.type
        if bound.struct is not None:
            if bound.is_nullable:
                return (
                    b"\xff" if value is None else b"\x01" + self.struct(bound.struct, value, path)
                )
            return self.struct(bound.struct, value, path)
        if type_name in FIXED_SIZES:
            return self._fixed(type_name, value, path)
        width = 2 if type_name == "string" else 4
        if value is None:
            return self._length(bound, None, width, path)
        raw = self._text(value, path) if type_name == "string" else self._bytes(value, path)
        return self._length(bound, len(raw), width, path) + raw

    def _fixed(self, type_name: str, value: Any, path: str) -> bytes:
        if type_name == "uuid" and not (isinstance(value, bytes) and len(value) == Uuid.SIZE):
            self._fail(f"a Uuid is needed, not {_describe(value)}", path)
        try:
            return struct.pack(">" + FORMATS[type_name], value)
        except struct.error:
            self._fail(f"{_describe(value)} is no {type_name}", path)

    def _text(self, value: object, path: str) -> bytes:
        if not isinstance(value, str):
            self._fail(f"a string is needed, not {_describe(value)}", path)
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            self._fail(f"not UTF-8: {error.reason}", path)
        if len(raw) > primitives.STRING_BYTES_MAX:
            self._fail(f"string of {len(raw)} bytes, limit {primitives.STRING_BYTES_MAX}", path)
        return raw

    def _bytes(self, value: object, path: str) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            self._fail(f"bytes are needed, not {_describe(value)}", path)
        return bytes(value)

    def _length(self, bound: FieldLayout, length: int | None, width: int, path: str) -> bytes:
        if bound.is_compact:
            return self._uvarint(0 if length is None else length + 1, path)
        try:
            return (-1 if length is None else length).to_bytes(width, "big", signed=True)
        except OverflowError:
            self._fail(f"length {length} does not fit in {width} bytes", path)

    def _uvarint(self, value: int, path: str) -> bytes:
        try:
            return primitives.encode_uvarint(value)
        except EncodeError as error:
            self._fail(error.problem, path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _describe(value: object) -> str:
    """A value in a few words: a whole batch would drown the message."""
    if isinstance(value, int | float | bool) or value is None:
        return repr(value)
    return f"a value of type {type(value).__name__}"
