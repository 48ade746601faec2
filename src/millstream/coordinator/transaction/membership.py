"""Which partitions belong to a transaction. Rules 3, 6 and 7 of section 6.3 of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.transaction.metadata import TransactionState
from millstream.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.transaction.metadata import TransactionMetadata
    from millstream.types import TopicPartition


def require_producer(known: TransactionMetadata, producer: ProducerStamp) -> None:
    """Raise unless this is the producer that has the transactional id now, and it may go on."""
    if known.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping(
            f"{known.transactional_id!r} belongs to producer {known.producer_id}, "
            f"not {producer.producer_id}"
        )
    if known.producer_epoch != producer.producer_epoch:
        raise ProducerFenced(
            f"producer {known.producer_id} is in epoch {known.producer_epoch}, "
            f"not {producer.producer_epoch}"
        )
    if known.state.is_ending:
        raise ConcurrentTransactions("the transaction before is still being ended; try again")


def with_partitions(
    known: TransactionMetadata,
    partitions: Iterable[TopicPartition],
    client_version: int,
    wall_ms: int,
) -> TransactionMetadata | None:
    """The state with more partitions; None if it has them all already."""
    added = known.partitions.union(partitions)
    is_open = known.state is TransactionState.ONGOING
    if is_open and added == known.partitions:
        return None
    return known._replace(
        state=TransactionState.ONGOING,
        partitions=added if is_open else frozenset(partitions),
        start_ms=known.start_ms if is_open else wall_ms,
        last_update_ms=wall_ms,
        client_version=client_version,
    )
