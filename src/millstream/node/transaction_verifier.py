"""Leaders ask here whether their partitions belong to a transaction (KIP-890).

The coordinator is in this process. What it says is put into the words that producers understand:
rule 7 of section 6.3 of the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.clock import Clock
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.types import TopicPartition

NEW_CLIENT: Final = 2
RETRY_MS: Final = 20
RETRY_TIME_MAX_MS: Final = 100
"""How long a leader asks again while the transaction before is still being ended."""
_TRY_AGAIN: Final = (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NetworkException,
)


class LocalTransactionVerifier:
    """A `replica.ports.TransactionVerifier` for a coordinator in the same process."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        clock: Clock,
        call_later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """`call_later` calls something after so many milliseconds."""
        self._transactions = transactions
        self._clock = clock
        self._call_later = call_later

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ApiError]], None],
        *,
        adds_partitions: bool,
    ) -> None:
        """`done` gets an error for each partition that is not in the transaction."""
        producer = ProducerStamp(producer_id, producer_epoch)
        wanted = list(partitions)
        if adds_partitions:
            until_ms = self._clock.monotonic_ms() + RETRY_TIME_MAX_MS
            self._add(transactional_id, producer, wanted, done, until_ms)
            return

        def verified(missing: set[TopicPartition] | ApiError) -> None:
            if isinstance(missing, ApiError):
                done(dict.fromkeys(wanted, _for_producer(missing, adds_partitions=False)))
            else:
                problem = InvalidTxnState("the partition was not added to the transaction")
                done(dict.fromkeys(missing, problem))

        self._transactions.missing_partitions(transactional_id, producer, wanted, verified)

    def _add(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        wanted: list[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ApiError]], None],
        until_ms: int,
    ) -> None:
        def added(error: ApiError | None) -> None:
            if error is None:
                done({})
            elif isinstance(error, ConcurrentTransactions) and (
                self._clock.monotonic_ms() < until_ms
            ):
                self._call_later(
                    RETRY_MS,
                    lambda: self._add(transactional_id, producer, wanted, done, until_ms),
                )
            else:
                done(dict.fromkeys(wanted, _for_producer(error, adds_partitions=True)))

        self._transactions.add_partitions(transactional_id, producer, wanted, NEW_CLIENT, added)


def _for_producer(error: ApiError, *, adds_partitions: bool) -> ApiError:
    """A coordinator's error as the answer to a Produce request."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, _TRY_AGAIN):
        return NotEnoughReplicas(str(error))
    if isinstance(error, ConcurrentTransactions) and not adds_partitions:
        return NotEnoughReplicas(str(error))
    if isinstance(error, InvalidTxnState) and adds_partitions:
        return TransactionAbortable(str(error))
    return error
