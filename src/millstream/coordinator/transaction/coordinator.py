"""`TransactionCoordinator`: what brokers and producers ask about transactions.

Request handlers and the leaders of partitions call it; it checks what can be checked without the
state, finds the shard, and fetches a producer id where one is needed. Answers come through `done`,
perhaps before the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millstream.coordinator.decision import Decision, ProducerStamp
from millstream.coordinator.transaction.metadata import NO_EPOCH, NO_PRODUCER_ID
from millstream.coordinator.transaction.shard import NEEDS_PRODUCER_ID
from millstream.errors import (
    ApiError,
    InvalidRequest,
    InvalidTransactionTimeout,
    TransactionalIdNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.coordinator.decision import Moment
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.coordinator.transaction.config import TransactionConfig
    from millstream.coordinator.transaction.ending import EndRequest
    from millstream.coordinator.transaction.metadata import TransactionMetadata
    from millstream.coordinator.transaction.ports import EndedTransaction, ProducerIds
    from millstream.coordinator.transaction.shard import ProducerAnswer, TransactionShard
    from millstream.types import TopicPartition

    ProducerDone: TypeAlias = Callable[[ProducerStamp | ApiError], None]
    Ask: TypeAlias = Callable[
        ["int | None"], Callable[[TransactionShard, Moment], Decision[ProducerAnswer]]
    ]


class TransactionFilter(NamedTuple):
    """Which transactions ListTransactions wants."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    duration_min_ms: int
    matches_id: Callable[[str], bool]

    def admits(self, known: TransactionMetadata, wall_ms: int) -> bool:
        """Whether a transaction is one of them. One that is being forgotten never is."""
        age_ms = wall_ms - known.start_ms
        return (
            (not self.states or known.state.title in self.states)
            and (not self.producer_ids or known.producer_id in self.producer_ids)
            and (
                self.duration_min_ms < 0 or (known.start_ms >= 0 and age_ms > self.duration_min_ms)
            )
            and self.matches_id(known.transactional_id)
        )


class TransactionCoordinator:
    """The transactions that this broker coordinates."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        ids: ProducerIds,
        config: TransactionConfig,
    ) -> None:
        self._runtime = runtime
        self._ids = ids
        self._config = config

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerStamp | None,
        done: ProducerDone,
    ) -> None:
        """Make a producer the one that has a transactional id."""
        try:
            _require_id(transactional_id)
            self._require_timeout(timeout_ms)
        except ApiError as error:
            done(error)
            return
        self._ask(
            transactional_id,
            lambda new_id: (
                lambda shard, now: shard.init_producer(
                    transactional_id, timeout_ms, expected, new_id, now
                )
            ),
            done,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        client_version: int,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Add partitions to a transaction, which begins with the first."""
        try:
            _require_id(transactional_id)
        except ApiError as error:
            done(error)
            return
        wanted = frozenset(partitions)
        self._runtime.write(
            transactional_id,
            lambda shard, now: shard.add_partitions(
                transactional_id, producer, wanted, client_version, now
            ),
            done,
        )

    def missing_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        done: Callable[[set[TopicPartition] | ApiError], None],
    ) -> None:
        """Which partitions do not belong to a producer's open transaction."""
        wanted = frozenset(partitions)
        self._runtime.read(
            transactional_id,
            lambda shard, _: shard.missing_partitions(transactional_id, producer, wanted),
            done,
        )

    def end(self, transactional_id: str, request: EndRequest, done: ProducerDone) -> None:
        """Commit or abort; the answer is the producer to go on with."""
        try:
            _require_id(transactional_id)
        except ApiError as error:
            done(error)
            return
        self._ask(
            transactional_id,
            lambda new_id: lambda shard, now: shard.end(transactional_id, request, new_id, now),
            done,
        )

    def markers_written(self, ended: EndedTransaction) -> None:
        """Every partition of a transaction knows its end."""
        self._runtime.write(
            ended.transactional_id,
            lambda shard, now: shard.markers_written(ended, now),
            # What could not be written the shard tries again, or the next coordinator.
            lambda _: None,
        )

    def describe(
        self, transactional_id: str, done: Callable[[TransactionMetadata | ApiError], None]
    ) -> None:
        """The state of one transactional id."""

        def ask(shard: TransactionShard, _: Moment) -> TransactionMetadata:
            known = shard.transactions.get(transactional_id)
            if known is None:
                raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
            return known

        try:
            _require_id(transactional_id)
        except ApiError as error:
            done(error)
            return
        self._runtime.read(transactional_id, ask, done)

    def list(
        self,
        wanted: TransactionFilter,
        done: Callable[[list[TransactionMetadata] | ApiError], None],
    ) -> None:
        """The transactional ids of this broker that a filter admits."""

        def ask(shard: TransactionShard, now: Moment) -> list[TransactionMetadata]:
            return [
                each for each in shard.transactions.values() if wanted.admits(each, now.wall_ms)
            ]

        def asked(found: list[list[TransactionMetadata]] | ApiError) -> None:
            if isinstance(found, ApiError):
                done(found)
            else:
                done([each for part in found for each in part])

        self._runtime.read_all(ask, asked)

    def _ask(self, transactional_id: str, ask: Ask, done: ProducerDone) -> None:
        """Ask a shard; again with a new producer id if it needs one."""

        def answered(answer: ProducerAnswer) -> None:
            if answer is NEEDS_PRODUCER_ID:
                self._ids.generate(generated)
            else:
                done(answer)

        def generated(new_id: int | ApiError) -> None:
            if isinstance(new_id, ApiError):
                done(new_id)
            else:
                self._runtime.write(transactional_id, ask(new_id), answered)

        self._runtime.write(transactional_id, ask(None), answered)

    def _require_timeout(self, timeout_ms: int) -> None:
        if not 0 < timeout_ms <= self._config.timeout_max_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms is {timeout_ms}; it can be 1 to "
                f"{self._config.timeout_max_ms} (transaction.max.timeout.ms of the broker)"
            )


def expected_producer(producer_id: int, producer_epoch: int) -> ProducerStamp | None:
    """The producer that a request says it is; None if it does not."""
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_EPOCH):
        raise InvalidRequest("a producer id and its epoch are given together or not at all")
    return None if producer_id == NO_PRODUCER_ID else ProducerStamp(producer_id, producer_epoch)


def _require_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
