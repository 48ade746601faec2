"""Leaders ask here whether their partitions belong to a transaction (KIP-890).

The coordinator is in this process or on another broker. What it says is put into the words that
producers understand: rule 7 of section 6.3 of the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.routing import partition_for
from millstream.errors import (
    NO_ERROR,
    ApiError,
    ClusterAuthorizationFailed,
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
    UnknownServerError,
    UnsupportedVersion,
    error_for_code,
)
from millstream.metadata.topic_names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from millstream.node.peer_calls import PeerCalls, coordinator_of
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.peer_calls import PeerContext
    from millstream.protocol.message import Message
    from millstream.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResult

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


class Question(NamedTuple):
    """Whether partitions belong to a transaction, or that they shall."""

    transactional_id: str
    producer: ProducerStamp
    partitions: tuple[TopicPartition, ...]
    adds_partitions: bool


class BrokerTransactionVerifier:
    """A `replica.ports.TransactionVerifier`: asks the coordinator, wherever it is."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        metadata: KRaftMetadataCache,
        context: PeerContext,
        call_later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """`call_later` calls something after so many milliseconds."""
        api = _VerificationApi(transactions, metadata)
        self._calls = PeerCalls(api, context, context.make_peers())
        self._clock = context.clock
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
        question = Question(transactional_id, producer, tuple(partitions), adds_partitions)
        self._ask(question, done, self._clock.monotonic_ms() + RETRY_TIME_MAX_MS)

    def close(self) -> None:
        """Ask nobody any more."""
        self._calls.close()

    def _ask(
        self,
        question: Question,
        done: Callable[[Mapping[TopicPartition, ApiError]], None],
        until_ms: int,
    ) -> None:
        def answered(outcome: Mapping[TopicPartition, ApiError] | ApiError) -> None:
            if isinstance(outcome, UnsupportedVersion):
                done({})  # A coordinator that cannot be asked does not refuse anything.
                return
            if isinstance(outcome, ApiError):
                outcome = dict.fromkeys(question.partitions, outcome)
            is_early = any(isinstance(each, ConcurrentTransactions) for each in outcome.values())
            if question.adds_partitions and is_early and self._clock.monotonic_ms() < until_ms:
                self._call_later(RETRY_MS, lambda: self._ask(question, done, until_ms))
                return
            adds = question.adds_partitions
            done({name: _for_producer(each, adds) for name, each in outcome.items()})

        self._calls.ask(question, answered)


class _VerificationApi:
    """A `PeerApi`: what transaction coordinators are asked by leaders."""

    def __init__(self, transactions: TransactionCoordinator, metadata: KRaftMetadataCache) -> None:
        self._transactions = transactions
        self._metadata = metadata

    def broker_of(self, asked: Question) -> int | ApiError:
        """The coordinator of the transactional id."""
        return coordinator_of(self._metadata, TRANSACTION_STATE_TOPIC, asked.transactional_id)

    def group_of(self, asked: Question) -> Hashable:
        """All go together."""
        return None

    def key_of(self, asked: Question) -> Hashable:
        """A request has each transaction once."""
        return asked.transactional_id

    def ask_here(
        self,
        asked: Question,
        done: Callable[[Mapping[TopicPartition, ApiError] | ApiError], None],
    ) -> None:
        """The coordinator is in this process."""
        if asked.adds_partitions:
            self._transactions.add_partitions(
                asked.transactional_id,
                asked.producer,
                asked.partitions,
                NEW_CLIENT,
                lambda error: done({} if error is None else error),
            )
            return

        def verified(missing: set[TopicPartition] | ApiError) -> None:
            if isinstance(missing, ApiError):
                done(missing)
            else:
                problem = InvalidTxnState("the partition was not added to the transaction")
                done(dict.fromkeys(missing, problem))

        self._transactions.missing_partitions(
            asked.transactional_id, asked.producer, asked.partitions, verified
        )

    def request(self, asked: Sequence[Question]) -> AddPartitionsToTxnRequest:
        """All questions at once, as brokers ask since version 4."""
        return AddPartitionsToTxnRequest(transactions=[_transaction(each) for each in asked])

    def outcomes(
        self, asked: Sequence[Question], response: Message
    ) -> list[Mapping[TopicPartition, ApiError] | ApiError]:
        """The errors by transaction."""
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code != NO_ERROR:
            error: ApiError = error_for_code(response.error_code)
            if isinstance(error, ClusterAuthorizationFailed):
                error = InvalidTxnState(f"this broker may not ask the coordinator: {error}")
            return [error for _ in asked]
        by_id = {each.transactional_id: each for each in response.results_by_transaction}
        return [_errors(by_id.get(each.transactional_id)) for each in asked]


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for each in question.partitions:
        topic = topics.setdefault(each.topic, AddPartitionsToTxnTopic(name=each.topic))
        topic.partitions.append(each.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.producer_epoch,
        verify_only=not question.adds_partitions,
        topics=list(topics.values()),
    )


def _errors(
    result: AddPartitionsToTxnResult | None,
) -> Mapping[TopicPartition, ApiError] | ApiError:
    if result is None:
        return UnknownServerError("the coordinator did not answer for the transaction")
    return {
        TopicPartition(topic.name, each.partition_index): error_for_code(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
        if each.partition_error_code != NO_ERROR
    }


class BrokerOffsetsVerifier:
    """A `coordinator.group.ports.OffsetsTransactions`: the same for offsets of a group."""

    def __init__(self, verifier: BrokerTransactionVerifier, metadata: KRaftMetadataCache) -> None:
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


def _for_producer(error: ApiError, adds_partitions: bool) -> ApiError:
    """A coordinator's error as the answer to a Produce request."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, _TRY_AGAIN):
        return NotEnoughReplicas(str(error))
    if isinstance(error, ConcurrentTransactions) and not adds_partitions:
        return NotEnoughReplicas(str(error))
    if isinstance(error, InvalidTxnState) and adds_partitions:
        return TransactionAbortable(str(error))
    if isinstance(error, TransactionAbortable) and not adds_partitions:
        return InvalidTxnState(str(error))
    return error
