"""InitProducerId for a transactional id: a producer takes over, and whoever had it is fenced.

Rule 1 of section 6.3 of the facts. Functions from a state to the next one; nothing is written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.transaction.metadata import (
    EPOCH_EXHAUSTED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionState,
)
from millstream.errors import ConcurrentTransactions, ProducerFenced

if TYPE_CHECKING:
    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.transaction.metadata import TransactionMetadata


def needs_new_id(known: TransactionMetadata, expected: ProducerStamp | None) -> bool:
    """Whether the epochs of the producer id are used up, for the producer that asks."""
    return (
        known.state.is_idle
        and known.is_epoch_exhausted
        and (expected is None or expected.producer_epoch == known.producer_epoch)
    )


def require_valid_producer(known: TransactionMetadata, expected: ProducerStamp | None) -> None:
    """Raise if the producer that asks has been replaced by another."""
    if expected is None or known.producer_epoch == NO_EPOCH:
        return
    is_current = expected.producer_id == known.producer_id
    is_retry_of_rotation = (
        expected.producer_id == known.previous_producer_id
        and expected.producer_epoch >= EPOCH_EXHAUSTED
    )
    if not (is_current or is_retry_of_rotation):
        raise ProducerFenced(
            f"producer {expected.producer_id} has been replaced by {known.producer_id}"
        )


def initialized(
    known: TransactionMetadata,
    expected: ProducerStamp | None,
    timeout_ms: int,
    new_id: int | None,
    wall_ms: int,
) -> TransactionMetadata:
    """The state in which a producer begins; an idle one, with an epoch that fences all before."""
    if known.state.is_ending:
        raise ConcurrentTransactions("the transaction before is still being ended; try again")
    if new_id is not None:
        producer_id, epoch = new_id, 0
        previous_id = known.producer_id
        last_epoch = known.producer_epoch if expected is not None else NO_EPOCH
    else:
        producer_id, previous_id = known.producer_id, known.previous_producer_id
        epoch, last_epoch = _next_epoch(known, expected)
    return known._replace(
        producer_id=producer_id,
        previous_producer_id=previous_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=wall_ms,
    )


def _next_epoch(known: TransactionMetadata, expected: ProducerStamp | None) -> tuple[int, int]:
    bumped = known.producer_epoch + 1
    if expected is None:
        return bumped, NO_EPOCH
    if known.producer_epoch in (NO_EPOCH, expected.producer_epoch):
        return bumped, known.producer_epoch
    if expected.producer_epoch == known.last_producer_epoch:
        return known.producer_epoch, known.last_producer_epoch  # The answer was lost.
    raise ProducerFenced(
        f"producer {known.producer_id} is in epoch {known.producer_epoch}, "
        f"not {expected.producer_epoch}"
    )
