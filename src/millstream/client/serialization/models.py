"""Typed JSON (or MessagePack) through msgspec and pydantic: bytes in, checked objects out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from millstream.client.serialization.base import Serde
from millstream.client.serialization.packages import require

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


class MsgspecSerde(Serde[T]):
    """Values of a type that msgspec knows: Structs, dataclasses, TypedDicts, built-ins."""

    def __init__(self, model: type[T], format: Literal["json", "msgpack"] = "json") -> None:  # noqa: A002  # The word that users look for.
        msgspec = require("msgspec", "MsgspecSerde")
        codec = msgspec.json if format == "json" else msgspec.msgpack
        self._encode = codec.Encoder().encode
        self._decode = codec.Decoder(model).decode

    def encode(self, value: T) -> bytes:
        """The model's bytes."""
        encoded: bytes = self._encode(value)
        return encoded

    def decode(self, data: bytes) -> T:
        """A checked value of the model."""
        decoded: T = self._decode(data)
        return decoded


class PydanticSerde(Serde[T]):
    """Values of a pydantic model, or of any type that pydantic can check, as JSON."""

    def __init__(self, model: type[T], **dump_options: Any) -> None:
        """`dump_options` go to pydantic's `dump_json`: by_alias, exclude_none, ..."""
        pydantic = require("pydantic", "PydanticSerde")
        self._adapter: TypeAdapter[T] = pydantic.TypeAdapter(model)
        self._dump_options = dump_options

    def encode(self, value: T) -> bytes:
        """The model's JSON. A value of another type is an error, not a warning."""
        checked = self._adapter.validate_python(value)
        return self._adapter.dump_json(checked, **self._dump_options)

    def decode(self, data: bytes) -> T:
        """A checked value of the model."""
        return self._adapter.validate_json(data)
