"""Leaders ask here whether their partitions belong to a transaction (KIP-890).

The coordinator is in this process. What it says is put into the words that producers understand:
rule 7 of section 6.3 of the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.routing import partition_for
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
from millstream.metadata.topic_names import GROUP_OFFSETS_TOPIC
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.clock import Clock
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.metadata.cache import KRaftMetadataCache

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


class LocalOffsetsVerifier:
    """A `coordinator.group.ports.OffsetsTransactions`: the same for offsets of a group."""

    def __init__(self, verifier: LocalTransactionVerifier, metadata: KRaftMetadataCache) -> None:
        self._verifier = verifier
        self._metadata = metadata

    def verify(
        self,
        transactional_id: str,
        stamp: ProducerStamp,
        group_id: str,
        done: Callable[[ApiError | None], None],
        *,
        adds_partition: bool,
    ) -> None:
        """`done` gets None if the group's offsets may be written in the transaction."""
        count = self._metadata.partition_count(GROUP_OFFSETS_TOPIC)
        if not count:
            done(CoordinatorNotAvailable(f"{GROUP_OFFSETS_TOPIC} does not exist yet"))
            return
        partition = TopicPartition(GROUP_OFFSETS_TOPIC, partition_for(group_id, count))

        def verified(errors: Mapping[TopicPartition, ApiError]) -> None:
            error = errors.get(partition)
            # What a Produce request calls too few replicas, a commit calls a coordinator to come.
            is_transient = isinstance(error, NotEnoughReplicas)
            done(CoordinatorLoadInProgress(str(error)) if is_transient else error)

        self._verifier.verify(
            transactional_id,
            stamp.producer_id,
            stamp.producer_epoch,
            [partition],
            verified,
            adds_partitions=adds_partition,
        )


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
