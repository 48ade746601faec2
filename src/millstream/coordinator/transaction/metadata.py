"""One transactional id: its producer, how its transaction stands, and the record of it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
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
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            # A transaction that has not begun has no list at all.
            transaction_partitions=None
            if self.state is TransactionState.EMPTY
            else by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        return CoordinatorRecord(
            TransactionLogKey(transactional_id=self.transactional_id), value, _VALUE_VERSION
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


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    """Partitions, grouped and sorted."""
    topics: dict[str, list[int]] = {}
    for each in sorted(partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]
