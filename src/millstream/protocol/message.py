"""What every generated message and struct is: slots, equality, repr, and bytes in any version.

The classes under `messages/` derive from here. A message is a plain mutable value; the code that
encodes and decodes it is compiled from its notation the first time a version is used (see
`codec`). Nothing here knows sockets, frames or headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from millstream.protocol import codec
from millstream.protocol.notation import NO_VERSIONS, VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field
    from typing import Self

    from millstream.types import ReadableBuffer

UnknownTags: TypeAlias = tuple[tuple[int, bytes], ...]
"""Tagged fields from a newer schema, by ascending tag: kept on decode, written back on encode."""

EMPTY: Final[list[Any]] = []
"""Stands for "a new empty list" in signatures; no message ever holds this very list."""


class _LazyDataclassFields:
    """Makes `dataclasses.fields`, `replace`, `asdict` work, at no cost until one is called."""

    def __get__(self, instance: object, owner: type[Struct]) -> dict[str, Field[Any]]:
        from millstream.protocol.reflection import dataclass_fields

        fields = dataclass_fields(owner)
        owner.__dataclass_fields__ = fields
        return fields


class Struct:
    """A struct inside a message."""

    # A generated class documents each of its slots with the field's notation; the compiler of
    # the codec reads it from there.
    __slots__: ClassVar[Mapping[str, str] | tuple[str, ...]] = ("unknown_tags",)

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = cast("Any", _LazyDataclassFields())

    unknown_tags: UnknownTags

    def __init__(self, *, unknown_tags: UnknownTags = ()) -> None:
        self.unknown_tags = unknown_tags

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    def __repr__(self) -> str:
        from millstream.protocol.reflection import set_fields

        shown = ", ".join(f"{name}={value!r}" for name, value in set_fields(self))
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """A request, response, header or record body that exists in several versions."""

    __slots__ = ()

    KEY: ClassVar[int] = -1
    """The API key of a request or response, the record type of a record; -1 where there is none."""
    VERSIONS: ClassVar[VersionRange] = NO_VERSIONS
    """The versions this code can encode and decode."""
    RELEASED: ClassVar[VersionRange] = NO_VERSIONS
    """The stable versions of Kafka 4.3, which is what Millstream speaks unless told otherwise."""
    FLEXIBLE: ClassVar[VersionRange] = NO_VERSIONS
    """The versions with compact lengths and tagged fields."""
    CARRIES_RECORDS: ClassVar[bool] = False
    """Whether record batches travel inside: they are never copied on decode."""

    def encode(self, version: int) -> bytes:
        """The body's bytes in a version; EncodeError if the version cannot carry a value."""
        return codec.encode(self, version)

    def encode_parts(self, version: int) -> list[ReadableBuffer]:
        """The body cut at its records, which come as they are: `b"".join` of it is `encode`.

        A `records` field may hold any object that has a length, such as a slice of a file; it is
        handed through for the sender to deal with.
        """
        return codec.encode_parts(self, version)

    @classmethod
    def decode(cls, buffer: ReadableBuffer, version: int, position: int = 0) -> Self:
        """Read the body that fills `buffer` from `position` to its end; DecodeError otherwise.

        `records` come out as memoryviews of `buffer`, everything else is copied.
        """
        return codec.decode(cls, buffer, version, position)

    @classmethod
    def decode_from(
        cls, buffer: ReadableBuffer, version: int, position: int = 0
    ) -> tuple[Self, int]:
        """Read a body that begins at `position`; also say where it ends."""
        return codec.decode_from(cls, buffer, version, position)
