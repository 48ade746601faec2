"""Any message in any version, built from the same layouts as the codec.

A drawn message is in the form that decoding gives back: tagged structs that equal their default
are None, fields that the version lacks keep their default.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from hypothesis import strategies as st

from millstream.protocol import messages as message_package
from millstream.protocol.layout import FieldLayout, StructLayout, is_default, layout_of
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from millstream.protocol.message import Message, Struct

Overrides: TypeAlias = "Mapping[str, SearchStrategy[Any]]"
"""By field name: what to draw instead, for peers that understand less than we do."""

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

SCALARS: dict[str, SearchStrategy[Any]] = {
    **{
        name: st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        for name, bits in _INTEGER_BITS.items()
    },
    "uint16": st.integers(0, (1 << 16) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=4) | st.sampled_from(["x" * 126, "x" * 127, "é" * 100]),
    "bytes": st.binary(max_size=4) | st.sampled_from([b"y" * 126, b"y" * 127]),
    "records": st.binary(max_size=4) | st.just(b"z" * 200),
    "uuid": st.binary(min_size=16, max_size=16).map(Uuid) | st.just(Uuid.ZERO),
}

UNKNOWN_TAGS = st.just(()) | st.dictionaries(
    st.integers(1_000, 1_000_000), st.binary(max_size=4), max_size=2
).map(lambda tags: tuple(sorted(tags.items())))


def message_names() -> list[str]:
    """Every message that still has versions."""
    return [name for name in dir(message_package) if name[0].isupper() and _is_live(name)]


def _is_live(name: str) -> bool:
    found = getattr(message_package, name)
    return isinstance(found, type) and len(versions_of(found)) > 0


def message_class(name: str) -> type[Message]:
    """The class of a message."""
    found: type[Message] = getattr(message_package, name)
    return found


def versions_of(cls: type[Message]) -> range:
    """Every version of a message."""
    return range(cls.VERSIONS.lowest, cls.VERSIONS.highest + 1)


def messages(
    cls: type[Message],
    version: int,
    *,
    overrides: Overrides | None = None,
    unknown_tags: SearchStrategy[tuple[tuple[int, bytes], ...]] = UNKNOWN_TAGS,
) -> SearchStrategy[Any]:
    """Messages of a class with values in the fields that a version has."""
    if overrides is None and unknown_tags is UNKNOWN_TAGS:
        return _any_messages(cls.__name__, version)
    return _structs(layout_of(cls, version), overrides or {}, unknown_tags)


@cache
def _any_messages(name: str, version: int) -> SearchStrategy[Any]:
    # Making a strategy takes longer than drawing from it.
    return _structs(layout_of(message_class(name), version), {}, UNKNOWN_TAGS)


def _structs(
    layout: StructLayout, overrides: Overrides, unknown_tags: SearchStrategy[Any]
) -> SearchStrategy[Any]:
    fields = {
        bound.name: _values(layout.cls, bound, overrides, unknown_tags)
        for bound in (*layout.fields, *layout.tagged)
    }
    if layout.is_flexible:
        fields["unknown_tags"] = unknown_tags
    return st.builds(layout.cls, **fields)


def _values(
    owner: type[Struct],
    bound: FieldLayout,
    overrides: Overrides,
    unknown_tags: SearchStrategy[Any],
) -> SearchStrategy[Any]:
    field = bound.field
    values = _single(bound, overrides, unknown_tags)
    if field.is_array:
        values = st.lists(values, max_size=2)
    if bound.is_nullable:
        values = st.none() | values
    if field.is_nested_struct and field.tag is not None:
        values = (st.none() | values).map(
            lambda value: None if is_default(owner, field, value) else value
        )
    return values


def _single(
    bound: FieldLayout, overrides: Overrides, unknown_tags: SearchStrategy[Any]
) -> SearchStrategy[Any]:
    if bound.struct is not None:
        return _structs(bound.struct, overrides, unknown_tags)
    return overrides.get(bound.name, SCALARS[bound.field.type])
