"""How a transaction ends: by its producer, by its timeout, or because a new producer comes.

Rules 4, 5, 9 and 11 of section 6.3 of the facts. `prepared` is the decision, which is final once it
is written; `completed` is the state when every partition has its marker. Functions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.transaction.metadata import (
    EPOCH_BUMP_SINCE,
    EPOCH_EXHAUSTED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionState,
)
from millstream.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)

if TYPE_CHECKING:
    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.transaction.metadata import TransactionMetadata

_COMPLETE: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class EndRequest(NamedTuple):
    """What a producer asks for."""

    producer: ProducerStamp
    is_commit: bool
    client_version: int
    """The transaction.version by whose rules it asks."""


def is_end_wanted(known: TransactionMetadata, request: EndRequest) -> bool:
    """Whether the state is to change; False if the producer asks again. Raises if it may not."""
    if request.client_version >= EPOCH_BUMP_SINCE:
        return _is_wanted_with_epochs(known, request)
    return _is_wanted_without_epochs(known, request)


def _is_wanted_without_epochs(known: TransactionMetadata, request: EndRequest) -> bool:
    """Old producers keep their epoch: an end that is complete may have been asked for before."""
    if known.producer_id != request.producer.producer_id:
        raise _other_producer(known, request)
    if known.producer_epoch != request.producer.producer_epoch:
        raise _fenced(known, request)
    if known.state is TransactionState.ONGOING:
        return True
    _refuse_ending(known, request)
    is_same = known.state is (
        TransactionState.COMPLETE_COMMIT if request.is_commit else TransactionState.COMPLETE_ABORT
    )
    if is_same:
        return False
    raise _no_transaction(known, request)


def _is_wanted_with_epochs(known: TransactionMetadata, request: EndRequest) -> bool:
    """Every end bumps the epoch, so a retry is recognised by the epoch before."""
    epoch = request.producer.producer_epoch
    is_bumped = known.bumps_epoch and known.producer_epoch == epoch + 1
    is_rotated = (
        known.bumps_epoch
        and known.previous_producer_id == request.producer.producer_id
        and epoch == EPOCH_EXHAUSTED
        and known.producer_epoch == 0
    )
    if known.producer_id != request.producer.producer_id and not is_rotated:
        raise _other_producer(known, request)
    is_retry = is_bumped or is_rotated
    is_current = epoch == known.producer_epoch
    may_retry = known.state.is_ending or known.state in _COMPLETE.values()
    if not (is_retry if known.state.is_ending else is_current or (may_retry and is_retry)):
        raise _fenced(known, request)
    if known.state is TransactionState.ONGOING:
        return True
    _refuse_ending(known, request)
    if is_retry:
        is_same = (known.state is TransactionState.COMPLETE_COMMIT) == request.is_commit
        if is_same and known.state is not TransactionState.EMPTY:
            return False
        raise _no_transaction(known, request)
    if request.is_commit:
        raise _no_transaction(known, request)
    return True  # An abort of nothing: it fences what may still be on its way.


def prepared(
    known: TransactionMetadata, request: EndRequest, new_id: int | None, wall_ms: int
) -> TransactionMetadata:
    """The state once the end is decided; `new_id` if the epochs are used up (`needs_new_id`)."""
    state = TransactionState.PREPARE_COMMIT if request.is_commit else TransactionState.PREPARE_ABORT
    has_epochs = request.client_version >= EPOCH_BUMP_SINCE
    return known._replace(
        state=state,
        partitions=known.partitions if known.state is TransactionState.ONGOING else frozenset(),
        producer_epoch=known.producer_epoch + has_epochs,
        last_producer_epoch=known.producer_epoch if has_epochs else known.last_producer_epoch,
        next_producer_id=NO_PRODUCER_ID if new_id is None else new_id,
        client_version=request.client_version,
        start_ms=known.start_ms if known.state is TransactionState.ONGOING else wall_ms,
        last_update_ms=wall_ms,
    )


def needs_new_id(known: TransactionMetadata, request: EndRequest) -> bool:
    """Whether the producer goes on with another id after this end."""
    return request.client_version >= EPOCH_BUMP_SINCE and known.is_epoch_exhausted


def fenced(known: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    """The state once an open transaction is aborted without its producer, which is locked out."""
    assert known.state is TransactionState.ONGOING
    return known._replace(
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=NO_EPOCH,
        last_update_ms=wall_ms,
    )


def completed(known: TransactionMetadata, wall_ms: int) -> TransactionMetadata:
    """The state once every partition knows the end."""
    producer_id, epoch = known.producer_after_end
    is_rotated = producer_id != known.producer_id
    return known._replace(
        state=_COMPLETE[known.state],
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=known.producer_id if is_rotated else known.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        last_producer_epoch=NO_EPOCH if is_rotated else known.last_producer_epoch,
        partitions=frozenset(),
        start_ms=known.start_ms if known.start_ms != NO_TIME else wall_ms,
        last_update_ms=wall_ms,
    )


def _refuse_ending(known: TransactionMetadata, request: EndRequest) -> None:
    if not known.state.is_ending:
        return
    if (known.state is TransactionState.PREPARE_COMMIT) == request.is_commit:
        raise ConcurrentTransactions("the transaction is being ended; try again")
    raise _no_transaction(known, request)


def _other_producer(known: TransactionMetadata, request: EndRequest) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        f"{known.transactional_id!r} belongs to producer {known.producer_id}, "
        f"not {request.producer.producer_id}"
    )


def _fenced(known: TransactionMetadata, request: EndRequest) -> ProducerFenced:
    return ProducerFenced(
        f"producer {known.producer_id} is in epoch {known.producer_epoch}, "
        f"not {request.producer.producer_epoch}"
    )


def _no_transaction(known: TransactionMetadata, request: EndRequest) -> InvalidTxnState:
    verb = "commit" if request.is_commit else "abort"
    return InvalidTxnState(f"there is nothing to {verb}: the state is {known.state.title}")
