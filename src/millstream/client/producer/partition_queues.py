"""The queues of batches by topic and partition, and what an append may have to wait for.

The accumulator's lock guards all of it. No behaviour lives here beyond measuring a record.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidArgument, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.types import Headers

ANY_PARTITION: Final = -1
"""To `append`: choose the partition by the key, or the sticky one without a key."""

RECORD_OVERHEAD_MAX: Final = 36
"""Bytes of a record besides key, value and headers: its varints at their longest."""

_HEADER_OVERHEAD_MAX: Final = 10


class TopicNotKnown(Exception):
    """The topic, or the partition asked for, has not been set: wait for metadata, then again."""


class MemoryNotFree(Exception):
    """There is no memory for a new batch: `reserve` this `size`, wait, append with what it gave."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class PartitionQueue:
    """The batches of one partition that wait to be taken, oldest first; the last may be open."""

    __slots__ = ("batches", "expected_size", "index", "lane", "open", "topic")

    is_express = False
    """Whether the sockets' thread takes its batches: only in the compiled twin."""

    def __init__(self, topic: TopicQueues, index: int, expected_size: int) -> None:
        self.topic = topic
        self.index = index
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.expected_size = expected_size
        """How large the last batch became: the next may become so, too."""
        self.lane: Any = None
        """The Sender's own notes about the partition."""

    def add(self, batch: ProducerBatch) -> None:
        """Begin a new batch, which takes the next records."""
        self.batches.append(batch)
        self.open = batch

    def take_first(self) -> None:
        """The oldest batch, which is not open, goes its way."""
        self.batches.popleft()

    def remove(self, batch: ProducerBatch) -> None:
        """Take a certain batch out, which is not open."""
        self.batches.remove(batch)


class TopicQueues:
    """The queues of one topic, and its sticky partition."""

    __slots__ = ("available", "count", "name", "partitions", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.partitions: list[PartitionQueue] = []
        self.available: Sequence[int] = ()
        self.sticky = ANY_PARTITION
        self.sticky_bytes = 0


def size_bound(key: Any, value: Any, headers: Headers) -> int:
    """The most bytes that a record can take in a batch."""
    size = RECORD_OVERHEAD_MAX
    if key is not None:
        size += len(key) if type(key) is bytes else _buffer_size("key", key)
    if value is not None:
        size += len(value) if type(value) is bytes else _buffer_size("value", value)
    for name, content in headers:
        # A character has at most four bytes in UTF-8.
        size += 4 * len(name) + len(content or b"") + _HEADER_OVERHEAD_MAX
    return size


def _buffer_size(what: str, field: object) -> int:
    try:
        return memoryview(field).nbytes  # type: ignore[arg-type]  # What is no buffer raises.
    except TypeError:
        raise InvalidArgument(
            f"a {what} must be bytes, a str or None, not {type(field).__name__}: "
            f"give the producer a {what}_serializer"
        ) from None


def too_large(topic: str, size: int, limit: int) -> MessageTooLarge:
    """The error for a record that no request could carry."""
    return MessageTooLarge(
        f"a record of {size} bytes to {topic} is above max_request_size, {limit}; "
        "send less at once, or raise the limit here and max.message.bytes at the topic"
    )
