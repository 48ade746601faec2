"""The queues of batches by topic and partition, and what an append may have to wait for.

The accumulator's lock guards all of it. The compiled queues are in `_accel.client.produce_sink`.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from millstream.client.producer.produce_sink import NOBODY, SEQUENCES, UNLIMITED
from millstream.errors import InvalidArgument, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.client.producer.produce_sink import ProduceSink, Route
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
    """The batches of one partition that wait to be sent: repeats, others, the last may be open.

    It is the owner of the partition's next sequence.
    """

    __slots__ = (
        "allowance",
        "batches",
        "expected_size",
        "identity",
        "index",
        "next_sequence",
        "open",
        "route",
        "state",
        "topic",
    )

    def __init__(self, topic: TopicQueues, index: int, expected_size: int) -> None:
        self.topic = topic
        self.index = index
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.expected_size = expected_size
        """How large the last batch became: the next may become so, too."""
        self.state: Any = None
        """The Sender's own notes about the partition."""
        self.route: Route | None = None
        self.allowance = 0
        """How many batches the Sender lets it send."""
        self.identity = NOBODY
        self.next_sequence = 0

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def is_granted(self) -> bool:
        """Whether it may send anything."""
        return self.allowance > 0

    @property
    def first(self) -> ProducerBatch | None:
        """The batch that is sent next; None if there is none."""
        return self.batches[0] if self.batches else None

    def add(self, batch: ProducerBatch) -> None:
        """Begin a new batch, which takes the next records."""
        self.batches.append(batch)
        self.open = batch
        if self.topic.sink is not None:
            self.topic.sink.on_batch(self)

    def put_back(self, batch: ProducerBatch, place: int) -> None:
        """Have a batch sent again, after the `place` first that are to be sent again, too."""
        batch.is_repeat = True
        self.batches.insert(place, batch)

    def repeats(self) -> list[ProducerBatch]:
        """The batches that are to be sent again, in their order."""
        return list(takewhile(lambda each: each.is_repeat, self.batches))

    def remove(self, batch: ProducerBatch) -> bool:
        """Take a certain batch out, which is not open; False if it is not here."""
        if batch not in self.batches:
            return False
        self.batches.remove(batch)
        return True

    def close(self) -> None:
        """The open batch, if there is one, takes no more records."""
        self.open = None

    def take_first(self) -> ProducerBatch:
        """The first batch goes: closed, and numbered if it has no number yet."""
        batch = self.batches.popleft()
        if batch is self.open:
            self.open = None
        batch.end_of_records()
        self.expected_size = batch.size
        if not batch.is_repeat and self.identity != NOBODY:
            batch.number(*self.identity, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCES
        if self.allowance != UNLIMITED:
            self.allowance -= 1
        return batch


class TopicQueues:
    """The queues of one topic, and its sticky partition."""

    __slots__ = ("available", "count", "name", "partitions", "sink", "sticky", "sticky_bytes")

    def __init__(self, name: str, sink: ProduceSink | None = None) -> None:
        self.name = name
        self.sink = sink
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
