"""murmur2 as Java's client computes it, and the partition it gives to a key.

Producers of every language must agree on it, or one key's records land in two partitions.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_WORD = Struct("<I")


def murmur2(data: ReadableBuffer) -> int:
    """The hash of `data` as the signed 32-bit number that Java shows."""
    view = memoryview(data).cast("B")
    whole = len(view) & -_WORD.size
    hashed = (_SEED ^ len(view)) & _MASK
    for (word,) in _WORD.iter_unpack(view[:whole]):
        mixed = (word * _MULTIPLIER) & _MASK
        mixed = ((mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ mixed
    if whole < len(view):
        hashed ^= int.from_bytes(view[whole:], "little")
        hashed = (hashed * _MULTIPLIER) & _MASK
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def partition_for_key(key: ReadableBuffer, partition_count: int) -> int:
    """The partition which every Kafka client's default partitioner gives to `key`."""
    if partition_count < 1:
        raise ValueError(f"partition count must be at least 1, not {partition_count}")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
