"""What sticky assignors tell the leader about the past, in the bytes that Java's assignors use.

`sticky` sends what the member had and in which generation; `cooperative-sticky` only the
generation, since members that cooperate say what they own in the subscription itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.problem import (
    NO_GENERATION,
    PreviousAssignment,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

NOTHING = PreviousAssignment()


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in order."""
    found: dict[str, list[int]] = {}
    for each in sorted(partitions):
        found.setdefault(each.topic, []).append(each.partition)
    return found


def encode_sticky(previous: PreviousAssignment) -> bytes:
    """`[topic [partition]] generation`."""
    topics = by_topic(previous.partitions)
    parts = [_INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes))]
        parts += map(_INT32.pack, indexes)
    parts.append(_INT32.pack(previous.generation))
    return b"".join(parts)


def decode_sticky(data: bytes | None) -> PreviousAssignment:
    """Read what a member says; bytes that are not Java's count as nothing said.

    The first version had no generation. Another member's nonsense must not end this one.
    """
    if not data:
        return NOTHING
    try:
        return _Reader(data).sticky()
    except (struct.error, UnicodeDecodeError, ValueError):
        return NOTHING


def encode_generation(generation: int) -> bytes:
    """What `cooperative-sticky` sends."""
    return _INT32.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """The generation that `cooperative-sticky` sent; -1 if it did not."""
    if data is None or len(data) < _INT32.size:
        return NO_GENERATION
    return int(_INT32.unpack_from(data)[0])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def sticky(self) -> PreviousAssignment:
        partitions: set[TopicPartition] = set()
        for _ in range(self._count()):
            topic = self._text()
            partitions.update(TopicPartition(topic, self._int32()) for _ in range(self._count()))
        has_generation = self._position + _INT32.size <= len(self._data)
        generation = self._int32() if has_generation else NO_GENERATION
        return PreviousAssignment(frozenset(partitions), generation)

    def _int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += _INT32.size
        return int(value)

    def _count(self) -> int:
        count = self._int32()
        if count > len(self._data) - self._position:
            raise ValueError(f"{count} elements do not fit")
        return count

    def _text(self) -> str:
        (size,) = _INT16.unpack_from(self._data, self._position)
        start = self._position + _INT16.size
        if size < 0 or start + size > len(self._data):
            raise ValueError(f"a text of {size} bytes does not fit")
        self._position = start + size
        return self._data[start : start + size].decode()
