"""What goes wrong on the side of a client: no broker, no time, no room, no permission to go on.

ClientError
├── BrokerUnreachable                   one broker did not answer; trying again may help
│   └── BootstrapFailed                 none did: nothing is known of the cluster
├── OperationTimeout (a TimeoutError)   the time that the caller gave is over
│   ├── BufferExhausted                 ... while waiting for room in the producer's buffer
│   └── DeliveryTimeout                 ... of a record, before it was acknowledged
├── ClientClosed, ForkedClient          this object cannot be used (here)
├── ConcurrentUse                       ... nor by two at a time
├── SerializationFailed                 a key or value could not be made bytes, or back
│   ├── RecordNotReadable               ... of one record, which the error names
│   └── SchemaRegistryError             ... because of the schema registry
├── CorruptBatch (a CorruptMessage)     a batch of a topic cannot be read
├── DeliveryFailed                      records were lost and nobody had looked
├── FatalProducerError                  this producer must be closed
│   └── ProducerFenced (an ApiError)    ... because a newer one has taken over
├── TransactionAborted                  what was sent was not committed
├── NoOffsetForPartition, OffsetOutOfRangeWithoutReset, LogTruncation
├── RecordsLost                         what a Spark query has still to read is gone
├── CommitFailed, PollIntervalExceeded  the group went on without this member
└── Wakeup                              another thread ended the wait

Errors that a broker answers with are `ApiError`s; `is_retriable` tells for both kinds whether the
same call may succeed later. Nothing here does anything but describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors.base import ApiError, MillstreamError
from millstream.errors.partitions import CorruptMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "BootstrapFailed",
    "BrokerUnreachable",
    "BufferExhausted",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "ConcurrentUse",
    "CorruptBatch",
    "DeliveryFailed",
    "DeliveryTimeout",
    "FatalProducerError",
    "ForkedClient",
    "LogTruncation",
    "NoOffsetForPartition",
    "OffsetOutOfRangeWithoutReset",
    "OperationTimeout",
    "PollIntervalExceeded",
    "RecordNotReadable",
    "RecordsLost",
    "SchemaRegistryError",
    "SerializationFailed",
    "TransactionAborted",
    "Wakeup",
    "is_retriable",
]


class ClientError(MillstreamError):
    """Something that a client found by itself: no broker has answered with it."""

    retriable: ClassVar[bool] = False


class BrokerUnreachable(ClientError):
    """A broker could not be connected to, hung up, or did not answer in time."""

    retriable = True

    def __init__(self, problem: str, *, was_sent: bool = False) -> None:
        super().__init__(problem)
        self.was_sent = was_sent
        """Whether the request may have reached the broker, and so may have been executed."""


class BootstrapFailed(BrokerUnreachable):
    """No address that was given leads to a broker; the text has the reason for each."""


class OperationTimeout(ClientError, TimeoutError):
    """The time that the caller gave is over."""

    retriable = True


class BufferExhausted(OperationTimeout):
    """The producer's buffer stayed full: records arrive faster than the brokers take them."""


class DeliveryTimeout(OperationTimeout):
    """A record was not acknowledged within the delivery timeout; it may or may not be written."""

    retriable = False


class ClientClosed(ClientError):
    """The client was closed; make a new one."""


class ConcurrentUse(ClientError):
    """A consumer is used by one thread or task at a time; only `wakeup` may come from others."""


class ForkedClient(ClientError):
    """The client belongs to the process that made it; a forked child must make its own."""


class SerializationFailed(ClientError):
    """A key, value or header could not be turned into bytes, or bytes not into a value."""


class RecordNotReadable(SerializationFailed):
    """A deserializer did not take the key or the value of a record."""

    def __init__(self, problem: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(problem)
        self.topic = topic
        """Where the record is, ..."""
        self.partition = partition
        """... in which partition of the topic, ..."""
        self.offset = offset
        """... and at which place there."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_not_readable, (str(self), self.topic, self.partition, self.offset)


def _rebuild_not_readable(
    problem: str, topic: str, partition: int, offset: int
) -> RecordNotReadable:
    return RecordNotReadable(problem, topic=topic, partition=partition, offset=offset)


class CorruptBatch(ClientError, CorruptMessage):
    """A batch of a topic cannot be read: its checksum is wrong, or its records are."""

    retriable = False

    def __init__(
        self,
        problem: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        next_offset: int,
        data: bytes,
    ) -> None:
        super().__init__(problem)
        self.topic = topic
        """Where the batch is, ..."""
        self.partition = partition
        """... in which partition of the topic."""
        self.offset = offset
        """The first record that the application has not got, ..."""
        self.next_offset = next_offset
        """... and where to go on behind the batch."""
        self.data = data
        """The batch as it was fetched."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_corrupt, (
            str(self),
            self.topic,
            self.partition,
            self.offset,
            self.next_offset,
            self.data,
        )


def _rebuild_corrupt(
    problem: str, topic: str, partition: int, offset: int, next_offset: int, data: bytes
) -> CorruptBatch:
    return CorruptBatch(
        problem,
        topic=topic,
        partition=partition,
        offset=offset,
        next_offset=next_offset,
        data=data,
    )


class SchemaRegistryError(SerializationFailed):
    """A schema registry refused a call or did not answer."""

    def __init__(self, problem: str, *, code: int = 0, retriable_elsewhere: bool = False) -> None:
        super().__init__(problem)
        self.code = code
        """The registry's own error code (40401: no such subject, 409: incompatible); 0 if none."""
        self.retriable_elsewhere = retriable_elsewhere
        """Whether another address, or the same later, may answer."""


class DeliveryFailed(ClientError):
    """Records could not be delivered and nobody had looked at their handles."""

    def __init__(self, problem: str, *, count: int, errors: Sequence[MillstreamError]) -> None:
        super().__init__(problem)
        self.count = count
        """How many records were lost."""
        self.errors = tuple(errors)
        """The first few reasons."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_delivery_failed, (str(self), self.count, self.errors)


def _rebuild_delivery_failed(
    problem: str, count: int, errors: tuple[MillstreamError, ...]
) -> DeliveryFailed:
    return DeliveryFailed(problem, count=count, errors=errors)


class FatalProducerError(ClientError):
    """The producer cannot keep its promises any more: close it and make a new one."""


class TransactionAborted(ClientError):
    """The records belonged to a transaction that was aborted."""


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset and `auto_offset_reset` is "none"."""


class OffsetOutOfRangeWithoutReset(ClientError):
    """A position is outside the log and `auto_offset_reset` is "none"."""


class RecordsLost(ClientError):
    """Records that a Spark query has still to read are gone, and `failOnDataLoss` is true."""


class LogTruncation(ClientError):
    """The log has changed before the consumer's position: records it has read are gone."""

    def __init__(self, problem: str, *, divergent_offsets: Mapping[Any, int] | None = None) -> None:
        super().__init__(problem)
        self.divergent_offsets = dict(divergent_offsets or {})
        """By TopicPartition: from where on what was read is not what the log has now."""


class CommitFailed(ClientError):
    """The group has given the partitions to others: what was committed does not count."""


class PollIntervalExceeded(ClientError):
    """`poll` was not called within the max poll interval, so this member left its group."""


class Wakeup(ClientError):
    """`wakeup()` was called from another thread while this one waited."""


def is_retriable(error: MillstreamError) -> bool:
    """Whether the same call may succeed later, unchanged."""
    return isinstance(error, ApiError | ClientError) and error.retriable
