"""One transactional id: its producer, how its transaction stands, and the record of it."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from millstream.protocol.primitives import encode_compact_string, encode_uvarint
from millstream.protocol.records_framing import TRANSACTION_RECORDS
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_EXHAUSTED: Final = (1 << 15) - 2
"""From this epoch on a producer id cannot be fenced any more and is replaced by another."""
EPOCH_BUMP_SINCE: Final = 2
"""The transaction.version from which on every transaction has an epoch of its own."""
_VALUE_VERSION: Final = 1
# Version, producer id, epoch, timeout, state; the partitions; last update, start, tagged fields.
_VALUE_HEAD: Final = Struct(">hqhib")
_VALUE_TAIL: Final = Struct(">qqB")
_CLIENT_VERSION_TAG: Final = Struct(">BBh")
_INT32: Final = Struct(">i")
_NO_LIST: Final = b"\0"
_NO_TAGS: Final = b"\0"


class TransactionState(IntEnum):
    """Where a transaction stands, by the number in its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that DescribeTransactions has."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided, and not every partition knows it."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open."""
        return self in _IDLE


_IDLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


class TransactionMetadata(NamedTuple):
    """The state of one transactional id. A change is a new value."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    """The id before `producer_id`, whose epochs were used up."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that the producer gets when the end of this transaction is complete."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump that a producer asked for itself: recognises its retry."""
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    client_version: int = 0
    """The transaction.version by whose rules the producer last spoke."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next producer needs another id."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def bumps_epoch(self) -> bool:
        """Whether every end of a transaction begins a new epoch."""
        return self.client_version >= EPOCH_BUMP_SINCE

    @property
    def producer_after_end(self) -> tuple[int, int]:
        """The producer id and epoch of what comes after the transaction that is ending."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def record(self) -> CoordinatorRecord:
        """The record of this state."""
        is_empty = self.state is TransactionState.EMPTY
        topics, topic_bytes = ([], _NO_LIST) if is_empty else _topics(self.partitions)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            # A transaction that has not begun has no list at all.
            transaction_partitions=None if is_empty else topics,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        key, key_bytes = _key(self.transactional_id)
        encoded = None
        if self.previous_producer_id == self.next_producer_id == NO_PRODUCER_ID:
            encoded = key_bytes, self._value_bytes(topic_bytes)
        return CoordinatorRecord(key, value, _VALUE_VERSION, encoded)

    def _value_bytes(self, topics: bytes) -> bytes:
        """The value of the record, without going through a message."""
        client_version = self.client_version
        return b"".join(
            (
                _VALUE_HEAD.pack(
                    _VALUE_VERSION,
                    self.producer_id,
                    self.producer_epoch,
                    self.timeout_ms,
                    self.state,
                ),
                topics,
                _VALUE_TAIL.pack(self.last_update_ms, self.start_ms, client_version != 0),
                _CLIENT_VERSION_TAG.pack(2, 2, client_version) if client_version else b"",
            )
        )

    def tombstone(self) -> CoordinatorRecord:
        """The record that forgets this transactional id."""
        return CoordinatorRecord(TransactionLogKey(transactional_id=self.transactional_id), None)


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> TransactionMetadata:
    """The state that a record keeps."""
    return TransactionMetadata(
        key.transactional_id,
        value.producer_id,
        value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


@lru_cache(maxsize=8192)  # The same producers come again and again.
def _key(transactional_id: str) -> tuple[TransactionLogKey, bytes]:
    key = TransactionLogKey(transactional_id=transactional_id)
    return key, TRANSACTION_RECORDS.encode(key, None)[0]


@lru_cache(maxsize=4096)  # And most of them with the same partitions.
def _topics(partitions: frozenset[TopicPartition]) -> tuple[list[PartitionsSchema], bytes]:
    """Partitions as a record has them, as a list and as bytes."""
    topics = by_topic(partitions)
    parts = [encode_uvarint(len(topics) + 1)]
    for each in topics:
        parts += (encode_compact_string(each.topic), encode_uvarint(len(each.partition_ids) + 1))
        parts += map(_INT32.pack, each.partition_ids)
        parts.append(_NO_TAGS)
    return topics, b"".join(parts)


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    """Partitions, grouped and sorted."""
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]
