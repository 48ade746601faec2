"""The small words of the wire: varints, strings and bytes, old and compact.

Hand-written code reads and writes with these; the compiled codec uses the varints. Every reader
takes (buffer, position), returns (value, next position) and raises DecodeError on bad bytes.
Writers return bytes and raise EncodeError. Nothing here knows messages or versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

UINT32_MAX = 0xFFFF_FFFF
STRING_BYTES_MAX = 0x7FFF
"""The longest string: compact strings keep the limit of the old int16 length."""


def read_uvarint(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """An unsigned number of up to 32 bits, seven bits a byte, lowest first."""
    try:
        # Nearly all are lengths of one or two bytes.
        value = buffer[position]
        if value < 0x80:
            return value, position + 1
        second = buffer[position + 1]
        if second < 0x80:
            return value & 0x7F | second << 7, position + 2
    except IndexError:
        raise DecodeError("truncated inside a varint", position=position) from None
    value, end = _read_base128(buffer, position, 5)
    if value > UINT32_MAX:
        raise DecodeError("uvarint has more than 32 bits", position=position)
    return value, end


def read_varint(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """A signed number of up to 32 bits, zig-zag: small magnitudes are short."""
    value, end = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), end


def read_varlong(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """A signed number of up to 64 bits, zig-zag."""
    value, end = _read_base128(buffer, position, 10)
    if value >> 64:
        raise DecodeError("varlong has more than 64 bits", position=position)
    return (value >> 1) ^ -(value & 1), end


def _read_base128(buffer: ReadableBuffer, position: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    for index in range(bytes_max):
        try:
            byte = buffer[position + index]
        except IndexError:
            raise DecodeError("truncated inside a varint", position=position) from None
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise DecodeError(f"varint does not end within {bytes_max} bytes", position=position)


def encode_uvarint(value: int) -> bytes:
    """See `read_uvarint`."""
    if 0x80 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0x4000 <= value < 0x20_0000:
        # The length of the records in most answers to a fetch.
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if not 0 <= value <= UINT32_MAX:
        raise EncodeError(f"{value} is not an unsigned number of 32 bits")
    return _encode_base128(value)


def encode_varint(value: int) -> bytes:
    """See `read_varint`."""
    if not -0x8000_0000 <= value <= 0x7FFF_FFFF:
        raise EncodeError(f"{value} is not a number of 32 bits")
    return _encode_base128((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """See `read_varlong`."""
    if not -(1 << 63) <= value < 1 << 63:
        raise EncodeError(f"{value} is not a number of 64 bits")
    return _encode_base128((value << 1) ^ (value >> 63))


def _encode_base128(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string(buffer: ReadableBuffer, position: int) -> tuple[str | None, int]:
    """A string with an int16 length; -1 is null."""
    raw, end = _read_sized(buffer, position, 2)
    return (None if raw is None else decode_utf8(raw, position)), end


def read_compact_string(buffer: ReadableBuffer, position: int) -> tuple[str | None, int]:
    """A string with a uvarint length + 1; 0 is null."""
    raw, end = read_compact_bytes(buffer, position)
    if raw is not None and len(raw) > STRING_BYTES_MAX:
        raise DecodeError(
            f"string of {len(raw)} bytes, limit {STRING_BYTES_MAX}", position=position
        )
    return (None if raw is None else decode_utf8(raw, position)), end


def read_bytes(buffer: ReadableBuffer, position: int) -> tuple[bytes | None, int]:
    """Bytes with an int32 length; -1 is null."""
    return _read_sized(buffer, position, 4)


def read_compact_bytes(buffer: ReadableBuffer, position: int) -> tuple[bytes | None, int]:
    """Bytes with a uvarint length + 1; 0 is null."""
    length, start = read_uvarint(buffer, position)
    if length == 0:
        return None, start
    return take(buffer, start, length - 1)


def _read_sized(buffer: ReadableBuffer, position: int, width: int) -> tuple[bytes | None, int]:
    prefix, start = take(buffer, position, width)
    length = int.from_bytes(prefix, "big", signed=True)
    if length == -1:
        return None, start
    if length < 0:
        raise DecodeError(f"length is {length}", position=position)
    return take(buffer, start, length)


def take(buffer: ReadableBuffer, position: int, length: int) -> tuple[bytes, int]:
    """Exactly `length` bytes."""
    end = position + length
    if end > len(buffer):
        raise DecodeError(
            f"truncated: {length} bytes needed, {max(0, len(buffer) - position)} left",
            position=position,
        )
    return bytes(buffer[position:end]), end


def decode_utf8(raw: bytes, position: int) -> str:
    """Text, or a DecodeError for what begins at `position`."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8: {error.reason}", position=position) from None


def encode_string(value: str | None) -> bytes:
    """See `read_string`."""
    if value is None:
        return b"\xff\xff"
    raw = _encode_utf8(value)
    return len(raw).to_bytes(2, "big") + raw


def encode_compact_string(value: str | None) -> bytes:
    """See `read_compact_string`."""
    return encode_compact_bytes(None if value is None else _encode_utf8(value))


def encode_bytes(value: ReadableBuffer | None) -> bytes:
    """See `read_bytes`."""
    return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value


def encode_compact_bytes(value: ReadableBuffer | None) -> bytes:
    """See `read_compact_bytes`."""
    return b"\0" if value is None else encode_uvarint(len(value) + 1) + value


def _encode_utf8(value: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"not UTF-8: {error.reason}") from None
    if len(raw) > STRING_BYTES_MAX:
        raise EncodeError(f"string of {len(raw)} bytes, limit {STRING_BYTES_MAX}")
    return raw
