"""Zigzag varints: how every number inside a record is written.

A number of 32 bits takes at most 5 bytes and one of 64 bits at most 10. Longer or overflowing
ones are corrupt; ones with needless leading zeros are accepted, as Kafka does.
"""

from __future__ import annotations

INT32_BYTES = 5
INT64_BYTES = 10
BITS = {INT32_BYTES: 32, INT64_BYTES: 64}


class VarintCutOff(Exception):
    """The bytes end before the varint does."""


class VarintTooWide(Exception):
    """The varint has more bytes or bits than its width allows."""


def _encode_unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


SMALL_LIMIT = 1 << 13
"""Below it (and from 0) a number is looked up; most lengths and deltas of a batch are."""

SMALL = tuple(_encode_unsigned(value << 1) for value in range(SMALL_LIMIT))
"""The varints of 0 to SMALL_LIMIT - 1."""


def encode_varint(value: int) -> bytes:
    """The varint of any signed 64-bit number."""
    if 0 <= value < SMALL_LIMIT:
        return SMALL[value]
    return _encode_unsigned((value << 1) ^ (value >> 63))


def read_varint(data: bytes, start: int, end: int, bytes_max: int) -> tuple[int, int]:
    """The signed number at `start` and the position after it; no byte from `end` on is read."""
    zigzag = shift = 0
    for position in range(start, start + bytes_max):
        if position >= end:
            raise VarintCutOff
        byte = data[position]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> BITS[bytes_max]:
                break
            return (zigzag >> 1) ^ -(zigzag & 1), position + 1
        shift += 7
    raise VarintTooWide
