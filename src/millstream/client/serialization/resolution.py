"""From what a user gives as serializer (a name, a function, an object, nothing) to one.

Producers, consumers, the command line and Spark resolve here, so that a name means the same to all.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from millstream.client.serialization.base import raise_undeserializable, raise_unserializable
from millstream.client.serialization.json import JsonSerde
from millstream.client.serialization.primitives import (
    BytesSerde,
    FloatSerde,
    IntSerde,
    StrSerde,
    UuidSerde,
)
from millstream.config.parsing import nearest_key
from millstream.errors import InvalidArgument, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableSequence

    from millstream.client.serialization.base import Deserializer, Serde, Serializer
    from millstream.types import Headers

SERDES_BY_NAME: Final[Mapping[str, Callable[[], Serde[Any]]]] = {
    "bytes": BytesSerde,
    "str": StrSerde,
    "int16": lambda: IntSerde(16),
    "int32": lambda: IntSerde(32),
    "int64": lambda: IntSerde(64),
    "float32": lambda: FloatSerde(32),
    "float64": lambda: FloatSerde(64),
    "uuid": UuidSerde,
    "json": JsonSerde,
}
"""What may be named instead of made: `value_serializer="json"`."""

_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."
_NAME_BY_JAVA_CLASS: Final = {
    "ByteArray": "bytes",
    "Bytes": "bytes",
    "String": "str",
    "Short": "int16",
    "Integer": "int32",
    "Long": "int64",
    "Float": "float32",
    "Double": "float64",
    "UUID": "uuid",
}

_SERDES_BY_FORMAT: Final = {
    "Avro": "an AvroSerde(registry) of millstream.client.serialization.avro",
    "JsonSchema": "a JsonSchemaSerde of millstream.client.serialization.json_schema",
    "Protobuf": "a ProtobufSerde of millstream.client.serialization.protobuf",
    "Json": "'json'",
}
"""What to use in the place of Confluent's classes and of those that frameworks bring."""


class _FunctionSerializer:
    """A function of the value as a serializer; None stays None."""

    def __init__(self, function: Callable[[Any], bytes | None]) -> None:
        self._function = function

    def serialize(
        self, topic: str, value: Any, headers: MutableSequence[tuple[str, bytes | None]]
    ) -> bytes | None:
        if value is None:
            return None
        try:
            return self._function(value)
        except MillstreamError:
            raise
        except Exception as error:
            raise_unserializable(_name_of(self._function), topic, value, error)


class _FunctionDeserializer:
    """A function of the bytes as a deserializer; None stays None."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def deserialize(self, topic: str, data: bytes | None, headers: Headers) -> Any:
        if data is None:
            return None
        try:
            return self._function(data)
        except MillstreamError:
            raise
        except Exception as error:
            raise_undeserializable(_name_of(self._function), topic, data, error)


def as_serializer(given: object, *, is_key: bool = False) -> Serializer[Any]:
    """The serializer that was meant: a name, a function of the value, an object; None is bytes."""
    made = _made(given, "serializer")
    if hasattr(made, "serialize"):
        return _for_side(made, is_key=is_key)  # type: ignore[no-any-return]
    if callable(made):
        return _FunctionSerializer(made)
    raise InvalidArgument(_not_one(given, "serializer", "serialize(topic, value, headers)"))


def as_deserializer(given: object, *, is_key: bool = False) -> Deserializer[Any]:
    """The deserializer that was meant: a name, a function of the bytes, an object, or None."""
    made = _made(given, "deserializer")
    if hasattr(made, "deserialize"):
        return _for_side(made, is_key=is_key)  # type: ignore[no-any-return]
    if callable(made):
        return _FunctionDeserializer(made)
    raise InvalidArgument(_not_one(given, "deserializer", "deserialize(topic, data, headers)"))


def _made(given: object, role: str) -> Any:
    if given is None:
        return BytesSerde()
    if isinstance(given, str):
        return _named(given, role)
    if inspect.isclass(given) and (hasattr(given, "serialize") or hasattr(given, "deserialize")):
        return given()
    return given


def _named(name: str, role: str) -> Serde[Any]:
    known = name
    if name.startswith(_JAVA_PACKAGE):
        stem = name.removeprefix(_JAVA_PACKAGE)
        stem = stem.removesuffix("Serializer").removesuffix("Deserializer")
        known = _NAME_BY_JAVA_CLASS.get(stem, name)
    if known not in SERDES_BY_NAME:
        if "." in name:
            raise InvalidArgument(_foreign_class(name, role))
        nearest = nearest_key(name, SERDES_BY_NAME)
        meant = f"; did you mean {nearest!r}?" if nearest else ""
        raise InvalidArgument(
            f"there is no {role} named {name!r}{meant} Known: {', '.join(SERDES_BY_NAME)}"
        )
    return SERDES_BY_NAME[known]()


def _foreign_class(name: str, role: str) -> str:
    """Why a class of Java's cannot be used, and what can."""
    simple = name.rpartition(".")[2]
    for format_name, ours in _SERDES_BY_FORMAT.items():
        if format_name in simple:
            return f"{name} is a class of Java's: give {ours} as the {role}"
    classes = [f"{_JAVA_PACKAGE}{stem}{role.capitalize()}" for stem in _NAME_BY_JAVA_CLASS]
    nearest = nearest_key(name, classes)
    meant = f"did you mean {nearest}? " if nearest else ""
    return (
        f"there is no {role} for the class {name}; {meant}"
        f"Known: {', '.join(SERDES_BY_NAME)}; or give a function or an object"
    )


def _for_side(serde: Any, *, is_key: bool) -> Any:
    """Schemas of keys and values have different subjects, so some serdes want to know."""
    for_side = getattr(serde, "for_side", None)
    return serde if for_side is None else for_side(is_key=is_key)


def _name_of(function: object) -> str:
    return getattr(function, "__qualname__", repr(function))


def _not_one(given: object, role: str, method: str) -> str:
    return (
        f"{given!r} is no {role}: give a name ({', '.join(SERDES_BY_NAME)}), a function, "
        f"or an object with {method}"
    )
