"""What rows are, in any order, as two numbers, in plain Python.

Spark's sink stores them with what it has written, and compares them when it is asked to write the
same again: a row more, less or elsewhere shows. Each row is hashed to 64 bits and the hashes are
added up, so the order of the rows does not count: Spark is free to change it. It is no signature;
whoever can choose the rows can make two that are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.records.plain.arrow_reader import ArrowChunk

_MASK = (1 << 64) - 1
_SPREADING = 0x9E3779B97F4A7C15
_ENDING = 0xBF58476D1CE4E5B9


def _absorb(state: int, word: int) -> int:
    state = ((state ^ word) * _SPREADING) & _MASK
    return state ^ state >> 32


def _absorb_bytes(state: int, data: bytes | None) -> int:
    """Bytes with their length before them."""
    if data is None:
        return _absorb(state, 0)
    state = _absorb(state, len(data) + 1)
    for at in range(0, len(data), 8):
        state = _absorb(state, int.from_bytes(data[at : at + 8], "little"))
    return state


def _ended(state: int) -> int:
    state = ((state ^ state >> 29) * _ENDING) & _MASK
    return state ^ state >> 32


def fold_rows(chunk: ArrowChunk, topic: bytes) -> tuple[int, int]:
    """(sum over the keys, sum over the whole rows) of a chunk that goes to `topic`, modulo 2**64.

    A key's part has the topic, the partition that the row asks for and the key; a row's has the
    value, the timestamp and the headers too.
    """
    seed = _absorb_bytes(0, topic)
    partitions = chunk.partitions()
    keys = content = 0
    for row in range(len(chunk)):
        timestamp, key, value, headers = chunk.row(row)
        state = _absorb(seed, 0 if partitions is None else partitions[row] + 1)
        state = _absorb_bytes(state, key)
        keys += _ended(state)
        state = _absorb_bytes(state, value)
        state = _absorb(state, timestamp is not None)
        if timestamp is not None:
            state = _absorb(state, timestamp & _MASK)
        state = _absorb(state, len(headers))
        for name, each in headers:
            state = _absorb_bytes(state, name.encode("utf-8", "surrogateescape"))
            state = _absorb_bytes(state, each)
        content += _ended(state)
    return keys & _MASK, content & _MASK
