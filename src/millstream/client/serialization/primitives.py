"""Serdes of plain types, in the bytes that Java's own serializers of these types write."""

from __future__ import annotations

import struct
import uuid
from typing import Literal

from millstream.client.serialization.base import Serde
from millstream.errors import InvalidArgument


class BytesSerde(Serde[bytes]):
    """Bytes as they are; anything that has a buffer may be sent."""

    def encode(self, value: bytes) -> bytes:
        """The same bytes."""
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise TypeError("not bytes; give a value_serializer or key_serializer that makes some")

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class StrSerde(Serde[str]):
    """Text, UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, value: str) -> bytes:
        """The text's bytes."""
        if not isinstance(value, str):
            raise TypeError("not a str")
        return value.encode(self._encoding)

    def decode(self, data: bytes) -> str:
        """The text."""
        return data.decode(self._encoding)


class IntSerde(Serde[int]):
    """Whole numbers of 2, 4 or 8 bytes, big-endian: Java's Short, Integer and Long."""

    def __init__(self, bits: Literal[16, 32, 64] = 64) -> None:
        formats = {16: ">h", 32: ">i", 64: ">q"}
        if bits not in formats:
            raise InvalidArgument(f"IntSerde has 16, 32 or 64 bits, not {bits}")
        self._struct = struct.Struct(formats[bits])

    def encode(self, value: int) -> bytes:
        """The number's bytes."""
        return self._struct.pack(value)

    def decode(self, data: bytes) -> int:
        """The number."""
        number: int = self._struct.unpack(data)[0]
        return number


class FloatSerde(Serde[float]):
    """Numbers of 4 or 8 bytes, IEEE 754, big-endian: Java's Float and Double."""

    def __init__(self, bits: Literal[32, 64] = 64) -> None:
        formats = {32: ">f", 64: ">d"}
        if bits not in formats:
            raise InvalidArgument(f"FloatSerde has 32 or 64 bits, not {bits}")
        self._struct = struct.Struct(formats[bits])

    def encode(self, value: float) -> bytes:
        """The number's bytes."""
        return self._struct.pack(value)

    def decode(self, data: bytes) -> float:
        """The number."""
        number: float = self._struct.unpack(data)[0]
        return number


class UuidSerde(Serde[uuid.UUID]):
    """UUIDs as text of 36 characters, as Java's UUIDSerializer writes them."""

    def encode(self, value: uuid.UUID) -> bytes:
        """The text's bytes."""
        if not isinstance(value, uuid.UUID):
            raise TypeError("not a uuid.UUID")
        return str(value).encode("ascii")

    def decode(self, data: bytes) -> uuid.UUID:
        """The UUID."""
        return uuid.UUID(data.decode("ascii"))
