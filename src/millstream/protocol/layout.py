"""What one struct looks like in one version: its fields in wire order, and what is absent.

The compiler of the codec and its slow counterpart both walk a `StructLayout`; tests build their
strategies from it. A layout is made once per struct, version and flexibility, and never changes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.protocol.notation import FIXED_SIZES, Field, parse_field
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.protocol.message import Message, Struct


class FieldLayout(NamedTuple):
    """One field as a version has it."""

    field: Field
    is_nullable: bool
    is_compact: bool
    struct: StructLayout | None
    """The layout of the struct, or of the array's elements."""

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.field.name

    @property
    def size_min(self) -> int:
        """The fewest bytes the field can take."""
        field = self.field
        if field.is_array or field.type in {"bytes", "records"}:
            return 1 if self.is_compact else 4
        if field.type == "string":
            return 1 if self.is_compact else 2
        if self.struct is not None:
            return 1 if self.is_nullable else self.struct.size_min
        return FIXED_SIZES[field.type]

    @property
    def element_size_min(self) -> int:
        """The fewest bytes of one element; never 0, so that a count always has a limit."""
        if self.struct is not None:
            return max(1, self.struct.size_min)
        if self.field.type in FIXED_SIZES:
            return FIXED_SIZES[self.field.type]
        return 1 if self.is_compact else 2


class StructLayout(NamedTuple):
    """One struct, or a message's body, as a version has it."""

    cls: type[Struct]
    is_flexible: bool
    fields: tuple[FieldLayout, ...]
    """Those that are always there, in wire order."""
    tagged: tuple[FieldLayout, ...]
    """Those that are there when they differ from their default, in order of their tags."""
    absent: tuple[Field, ...]
    """Those the version does not know: they keep their default."""
    size_min: int

    @property
    def has_records(self) -> bool:
        """Whether record batches travel inside, at any depth."""
        return any(
            bound.field.type == "records" or (bound.struct is not None and bound.struct.has_records)
            for bound in self.fields
        )


_fields: dict[type[Struct], tuple[Field, ...]] = {}
_layouts: dict[tuple[type[Struct], int, bool], StructLayout] = {}


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of a generated class, for all versions: its slots are documented in notation."""
    if cls not in _fields:
        notation = cls.__slots__ if isinstance(cls.__slots__, dict) else {}
        _fields[cls] = tuple(parse_field(name, text) for name, text in notation.items())
    return _fields[cls]


def layout_of(cls: type[Message], version: int) -> StructLayout:
    """The body of a message in a version that the message has."""
    return _struct_layout(cls, version, cls.FLEXIBLE.covers(version))


def _struct_layout(cls: type[Struct], version: int, is_flexible: bool) -> StructLayout:
    key = cls, version, is_flexible
    if key not in _layouts:
        _layouts[key] = _make_layout(*key)
    return _layouts[key]


def _make_layout(cls: type[Struct], version: int, is_flexible: bool) -> StructLayout:
    present: list[FieldLayout] = []
    tagged: list[FieldLayout] = []
    absent: list[Field] = []
    for field in fields_of(cls):
        if not field.versions.covers(version):
            absent.append(field)
            continue
        bound = _bind(cls, field, version, is_flexible)
        (present if field.tag is None else tagged).append(bound)
    return StructLayout(
        cls=cls,
        is_flexible=is_flexible,
        fields=tuple(present),
        tagged=tuple(sorted(tagged, key=lambda bound: bound.field.tag or 0)),
        absent=tuple(absent),
        size_min=sum(bound.size_min for bound in present) + is_flexible,
    )


def _bind(owner: type[Struct], field: Field, version: int, is_flexible: bool) -> FieldLayout:
    struct = None
    if field.is_struct:
        struct = _struct_layout(struct_class(owner, field.type), version, is_flexible)
    return FieldLayout(
        field=field,
        is_nullable=field.nullable.covers(version),
        is_compact=is_flexible and not field.is_never_compact,
        struct=struct,
    )


def struct_class(owner: type[Struct], name: str) -> type[Struct]:
    """The class of a struct that a field of `owner` names: it lives in the same module."""
    found: type[Struct] = getattr(sys.modules[owner.__module__], name)
    return found


def default_of(owner: type[Struct], field: Field) -> Any:
    """A fresh default value of a field."""
    if field.has_null_default or (field.is_nested_struct and field.tag is not None):
        return None
    if field.is_array:
        return []
    if field.is_struct:
        return struct_class(owner, field.type)()
    if field.type == "uuid":
        return Uuid.ZERO
    return b"" if field.type == "bytes" else field.default


def is_default(owner: type[Struct], field: Field, value: object) -> bool:
    """Whether a value need not be sent: a tagged one is left out, an unknown one is not missed."""
    if field.is_nested_struct and not field.has_null_default:
        return value is None or value == struct_class(owner, field.type)()
    default = default_of(owner, field)
    if field.is_array and default is not None:
        return isinstance(value, list | tuple) and len(value) == 0
    return bool(value == default)
