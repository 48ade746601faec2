"""What a serializer and a deserializer are, and how their failures are told.

A `Serde` is both. None stands for "no value" (a tombstone) in both directions and never reaches
`encode` or `decode`. A serde knows no topic unless its format does (schema registries), and it may
be shared by threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from millstream.errors import MillstreamError, SerializationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence

    from millstream.types import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

_SHOWN_CHARACTERS = 60


class Serializer(Protocol[T_contra]):
    """Turns keys or values into bytes."""

    def serialize(
        self, topic: str, value: T_contra | None, headers: MutableSequence[tuple[str, bytes | None]]
    ) -> bytes | None:
        """The bytes to send; headers may be added. SerializationFailed if it cannot be."""
        ...


class Deserializer(Protocol[T_co]):
    """Turns bytes into keys or values."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> T_co | None:
        """The value that was sent. SerializationFailed if it cannot be."""
        ...


class SerdeLike(Serializer[T], Deserializer[T], Protocol[T]):
    """Whatever does both, and so says exactly which type it is for."""


SerializerOf: TypeAlias = "SerdeLike[T] | type[SerdeLike[T]]"
"""What a type checker learns the type of keys or values from. Names, functions and objects that
only serialize tell it nothing: what a `lambda` takes is not written anywhere."""

AnySerializer: TypeAlias = "Serializer[Any] | type[Serializer[Any]] | Callable[[Any], bytes | None]"
"""Whatever may be given as a serializer, but a name."""

DeserializerOf: TypeAlias = "Deserializer[T] | type[Deserializer[T]] | Callable[[bytes], T]"
"""What a type checker learns the type of keys or values from: an object, a class or a function."""


class Serde(ABC, Generic[T]):
    """A serializer and a deserializer of one format. Formats write `encode` and `decode`."""

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The bytes of a value; may raise anything."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """The value of some bytes; may raise anything."""

    def serialize(
        self, topic: str, value: T | None, headers: MutableSequence[tuple[str, bytes | None]]
    ) -> bytes | None:
        """The bytes to send; None stays None."""
        if value is None:
            return None
        try:
            return self.encode(value)
        except MillstreamError:
            raise
        except Exception as error:
            raise_unserializable(type(self).__name__, topic, value, error)

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> T | None:
        """The value that was sent; None stays None."""
        if data is None:
            return None
        try:
            return self.decode(data)
        except MillstreamError:
            raise
        except Exception as error:
            raise_undeserializable(type(self).__name__, topic, data, error)


def raise_unserializable(name: str, topic: str, value: object, error: Exception) -> NoReturn:
    """Say which value of which topic could not be made bytes, and why."""
    raise SerializationFailed(
        f"{name} cannot serialize {type(value).__name__} {_shown(value)} for topic {topic!r}: "
        f"{error}"
    ) from error


def raise_undeserializable(name: str, topic: str, data: bytes, error: Exception) -> NoReturn:
    """Say which bytes of which topic could not be read, and why."""
    raise SerializationFailed(
        f"{name} cannot read {len(data)} bytes {_shown(data)} of topic {topic!r}: {error}"
    ) from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
