"""Messages seen from outside, as dataclasses and as text: for people, never for the wire."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from millstream.protocol.layout import default_of, fields_of, is_default

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.message import Struct


def dataclass_fields(cls: type[Struct]) -> dict[str, dataclasses.Field[Any]]:
    """What `dataclasses` would have noted about a class with these slots and this `__init__`."""
    types = {
        name: parameter.annotation for name, parameter in inspect.signature(cls).parameters.items()
    }
    declared: list[Any] = [
        (field.name, types[field.name], _default_factory(cls, index))
        for index, field in enumerate(fields_of(cls))
    ]
    declared.append(("unknown_tags", types["unknown_tags"], dataclasses.field(default=())))
    described: Any = dataclasses.make_dataclass(cls.__name__, declared, kw_only=True)
    return {field.name: field for field in dataclasses.fields(described)}


def _default_factory(cls: type[Struct], index: int) -> Any:
    field = fields_of(cls)[index]
    return dataclasses.field(default_factory=lambda: default_of(cls, field))


def set_fields(struct: Struct) -> Iterator[tuple[str, object]]:
    """The fields that differ from their defaults, which is what a reader wants to see."""
    cls = type(struct)
    for field in fields_of(cls):
        value = getattr(struct, field.name)
        if not is_default(cls, field, value):
            yield field.name, value
    if struct.unknown_tags:
        yield "unknown_tags", struct.unknown_tags
