"""Which offset is the last of each key: the cleaner's memory, bounded in bytes.

The cleaner fills it from the dirty part of a log and then asks it about every record. Keys are not
kept, only 16 bytes of their BLAKE2b: two keys that share them would lose one of their records, and
nobody can make such a pair. One entry takes 24 bytes in one flat table, whatever the key.

A dict from digest to offset answers in half the time (0.7 against 1.3 microseconds with the hash)
and takes some 180 bytes a key; a cleaner pass reads as many segments as the map has room for, so
seven times the keys is worth more. Not thread-safe: one cleaner thread, one map.
"""

from __future__ import annotations

from hashlib import blake2b
from math import isqrt
from struct import Struct
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

DIGEST_BYTES: Final = 16
ENTRY_BYTES: Final = 24
NO_OFFSET: Final = -1
_SLOTS_MIN: Final = 3
_WORDS: Final = ENTRY_BYTES // 8
_EMPTY: Final = 0
_two_words = Struct("=QQ").unpack


class OffsetMap:
    """A hash table of (digest, offset) in a fixed number of bytes, with open addressing."""

    __slots__ = ("_size", "_slots", "_table", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        if memory_bytes < ENTRY_BYTES * _SLOTS_MIN:
            raise InvalidArgument(
                f"an offset map needs at least {ENTRY_BYTES * _SLOTS_MIN} bytes, not {memory_bytes}"
            )
        if not 0 < load_factor <= 1:
            raise InvalidArgument(
                f"the load factor must be above 0 and at most 1, not {load_factor}"
            )
        self._slots = _prime_at_most(memory_bytes // ENTRY_BYTES)
        self.capacity = min(max(int(self._slots * load_factor), 1), self._slots - 1)
        """How many keys it takes before it is full."""
        self.latest_offset = NO_OFFSET
        """The last offset the map speaks about; the cleaner keeps every record after it."""
        self._size = 0
        self._table = self._fresh_table()

    def __len__(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another new key."""
        return self._size >= self.capacity

    def put(self, key: ReadableBuffer, offset: int) -> bool:
        """Note that `key` occurs at `offset`; False, and nothing is noted, if the map is full.

        Offsets come in the order of the log, so the last one wins.
        """
        table = self._table
        first, second, index = self._find(key)
        if table[index] == _EMPTY:
            if self._size >= self.capacity:
                return False
            self._size += 1
            table[index] = first
            table[index + 1] = second
        table[index + 2] = offset
        return True

    def get(self, key: ReadableBuffer) -> int:
        """The last offset of a key; NO_OFFSET if it was never put."""
        index = self._find(key)[2]
        return NO_OFFSET if self._table[index] == _EMPTY else self._table[index + 2]

    def clear(self) -> None:
        """Forget everything; fresh zero pages cost less than wiping the old ones."""
        self._size = 0
        self.latest_offset = NO_OFFSET
        self._table = self._fresh_table()

    def _fresh_table(self) -> memoryview:
        return memoryview(bytearray(self._slots * ENTRY_BYTES)).cast("Q")

    def _find(self, key: ReadableBuffer) -> tuple[int, int, int]:
        """The key's two words, and the index of its entry or of the free one it would take."""
        first, second = _two_words(blake2b(key, digest_size=DIGEST_BYTES).digest())
        first = first or 1  # zero marks a free entry
        table, slots = self._table, self._slots
        slot = first % slots
        # A step of the key's own keeps probes short at a high load; the number of slots is prime,
        # so every step visits all of them. One slot is always free, so the loop ends.
        step = 1 + second % (slots - 1)
        while (found := table[slot * _WORDS]) != _EMPTY:
            if found == first and table[slot * _WORDS + 1] == second:
                break
            slot = (slot + step) % slots
        return first, second, slot * _WORDS


def _prime_at_most(number: int) -> int:
    """The largest prime that is not above a number of at least two."""
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number
