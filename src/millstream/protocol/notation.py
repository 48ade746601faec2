"""The notation of a field: one short string that says how it looks on the wire.

    "string? 12+ = null, tag 0, ignorable"

is a string that may be null, exists from version 12 on, is null unless set, travels as tag 0 and
is dropped silently where the version lacks it. `schema/` is written in this notation and every
generated class carries it; the generator and the codec's compiler read it here. Nothing in this
module sees bytes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

VERSION_MAX = 32767
"""The end of an open range such as `3+`: versions are int16 on the wire."""

FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
"""Types that take the same number of bytes whatever their value."""

VARIABLE_TYPES = frozenset({"string", "bytes", "records"})
"""Types that begin with their length."""

ENTITIES = frozenset({"broker_id", "group_id", "producer_id", "topic_name", "transactional_id"})
"""What a value identifies, where the schema says so."""

Default: TypeAlias = int | float | str | bool | None


class NotationError(ValueError):
    """A field, a range or a default that is not written in the notation."""


class VersionRange(NamedTuple):
    """Versions from `lowest` to `highest`, both included; empty when `lowest > highest`."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read `3-7`, `3`, `3+` or `none`."""
        if text == "none":
            return NO_VERSIONS
        low, dash, high = text.partition("-")
        try:
            if dash:
                return cls(int(low), int(high))
            if low.endswith("+"):
                return cls(int(low[:-1]), VERSION_MAX)
            return cls(int(low), int(low))
        except ValueError:
            raise NotationError(
                f"not a version range: {text!r} (write 3-7, 3, 3+ or none)"
            ) from None

    def covers(self, version: int) -> bool:
        """Whether a version lies in the range."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == VERSION_MAX:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = VersionRange(0, -1)
"""The range of a message that was removed, or of a field that is never null."""


class Field(NamedTuple):
    """One field of a message or struct, for all versions."""

    name: str
    type: str
    """A type of the wire, or the name of a struct; of the elements if `is_array`."""
    is_array: bool
    versions: VersionRange
    nullable: VersionRange
    default: Default
    """Of a scalar. None for arrays, structs and whatever is null unless set."""
    has_null_default: bool
    """Whether an unset field is null; an array or struct is empty or made of defaults otherwise."""
    tag: int | None
    is_ignorable: bool
    is_never_compact: bool
    is_map_key: bool
    entity: str | None

    @property
    def is_struct(self) -> bool:
        """Whether the type, or the elements' type, is a struct."""
        return self.type[0].isupper()

    @property
    def is_nested_struct(self) -> bool:
        """Whether the value itself, not an element, is a struct."""
        return self.is_struct and not self.is_array


def parse_field(name: str, text: str) -> Field:
    """Read one field from `type[?nullable] [versions] [= default][, attribute]...`."""
    head, *attributes = text.split(", ")
    head, _, default_text = head.partition(" = ")
    type_text, _, versions_text = head.partition(" ")
    type_text, question_mark, nullable_text = type_text.partition("?")
    versions = VersionRange.parse(versions_text or "0+")
    nullable = NO_VERSIONS
    if question_mark:
        nullable = VersionRange.parse(nullable_text) if nullable_text else versions
    is_array = type_text.startswith("[]")
    base_type = type_text.removeprefix("[]")
    _require_known_type(name, base_type)
    marks = _parse_attributes(name, attributes)
    default = _parse_default(name, base_type, is_array, default_text)
    return Field(
        name=name,
        type=base_type,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        default=default,
        has_null_default=default_text == "null" or base_type == "records",
        tag=marks.tag,
        is_ignorable="ignorable" in marks.flags,
        is_never_compact="never_compact" in marks.flags,
        is_map_key="map_key" in marks.flags,
        entity=next((flag for flag in marks.flags if flag in ENTITIES), None),
    )


class _Marks(NamedTuple):
    tag: int | None
    flags: list[str]


_FLAGS = ENTITIES | {"ignorable", "map_key", "never_compact"}


def _parse_attributes(name: str, attributes: list[str]) -> _Marks:
    tag: int | None = None
    flags: list[str] = []
    for attribute in attributes:
        if attribute.startswith("tag "):
            tag = int(attribute[4:])
        elif attribute in _FLAGS:
            flags.append(attribute)
        else:
            raise NotationError(f"{name}: unknown attribute {attribute!r}")
    return _Marks(tag, flags)


def _require_known_type(name: str, base_type: str) -> None:
    if base_type in FIXED_SIZES or base_type in VARIABLE_TYPES or base_type[:1].isupper():
        return
    raise NotationError(f"{name}: unknown type {base_type!r}")


def _parse_default(name: str, base_type: str, is_array: bool, text: str) -> Default:
    if text == "null" or is_array or base_type[0].isupper() or base_type == "records":
        if text not in {"", "null"}:
            raise NotationError(f"{name}: {text!r} cannot be the default of {base_type}")
        return None
    if base_type == "bool":
        return text == "true"
    if base_type == "float64":
        return float(text or 0)
    if base_type in {"string", "bytes", "uuid"}:
        if text:
            raise NotationError(f"{name}: {base_type} has no default but null and nothing")
        return ""
    return int(text or 0)
