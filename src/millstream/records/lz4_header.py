"""The wrong header checksum of LZ4 frames in format 0, made right.

Kafka's first LZ4 writer computed the checksum over the wrong bytes, and clients kept the fault for
format 0 ever after. Libraries refuse such frames, so `legacy` mends the header before it
decompresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_DESCRIPTOR_AT = 4
_CONTENT_SIZE, _DICTIONARY_ID = 0x08, 0x01
_MASK = 0xFFFFFFFF
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def with_valid_checksum(frame: ReadableBuffer) -> ReadableBuffer:
    """The frame with the header checksum that the format asks for."""
    if len(frame) <= _DESCRIPTOR_AT:
        return frame
    flags = frame[_DESCRIPTOR_AT]
    checksum_at = _DESCRIPTOR_AT + 2
    checksum_at += 8 if flags & _CONTENT_SIZE else 0
    checksum_at += 4 if flags & _DICTIONARY_ID else 0
    mended = bytearray(frame)
    mended[checksum_at : checksum_at + 1] = bytes(
        [_xxh32(bytes(frame[_DESCRIPTOR_AT:checksum_at])) >> 8 & 0xFF]
    )
    return mended


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is what a header has."""
    one, two, three, four, five = _PRIMES
    hashed = (five + len(data)) & _MASK
    whole = len(data) & -4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        hashed = _rotate((hashed + word * three) & _MASK, 17) * four & _MASK
    for byte in data[whole:]:
        hashed = _rotate((hashed + byte * five) & _MASK, 11) * one & _MASK
    hashed = (hashed ^ hashed >> 15) * two & _MASK
    hashed = (hashed ^ hashed >> 13) * three & _MASK
    return hashed ^ hashed >> 16
