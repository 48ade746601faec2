"""Transactions as values: what coordinators know, what partitions know, and ending one by force.

`transactions` and `hanging` ask here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.cli.coordinators import CoordinatorKind, Peer, ask_brokers, ask_coordinators
from millstream.errors import TransactionalIdNotFound, error_for_code
from millstream.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.protocol.messages.describe_producers import TopicRequest
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.message_session import BrokerConnection, Session
    from millstream.protocol.messages.describe_producers import ProducerState
    from millstream.protocol.messages.describe_transactions import TransactionState

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transactional id as its coordinator describes it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True, slots=True)
class ProducerView:
    """A producer as a partition's leader remembers it."""

    place: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_ms: int | None
    start_offset: int | None
    """Of the transaction that is open here."""


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions to list; what is empty or None admits all."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    older_than_ms: int | None = None
    pattern: str | None = None


def list_transactions(session: Session, wanted: TransactionFilter) -> list[ListedTransaction]:
    """The transactional ids of the cluster, by name."""
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=_NONE if wanted.older_than_ms is None else wanted.older_than_ms,
        transactional_id_pattern=wanted.pattern,
    )

    def ask(peer: Peer) -> Iterable[ListedTransaction]:
        response = peer.connection.call(request, ListTransactionsResponse, session.timeout_ms)
        if response.error_code:
            raise error_for_code(response.error_code)
        return [
            ListedTransaction(
                each.transactional_id, each.producer_id, each.transaction_state, peer.node_id
            )
            for each in response.transaction_states
        ]

    return sorted(ask_brokers(session, ask), key=lambda each: each.transactional_id)


def find_transactions(
    session: Session, transactional_ids: Iterable[str]
) -> dict[str, TransactionView]:
    """Those that are there."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, TransactionView]:
        request = DescribeTransactionsRequest(transactional_ids=list(some))
        response = peer.connection.call(request, DescribeTransactionsResponse, session.timeout_ms)
        found = {}
        for each in response.transaction_states:
            if each.error_code == TransactionalIdNotFound.code:
                continue
            if each.error_code:
                raise error_for_code(each.error_code)
            found[each.transactional_id] = _transaction_view(each, peer.node_id)
        return found

    return ask_coordinators(session, CoordinatorKind.TRANSACTION, transactional_ids, ask)


def describe_producers(session: Session, places: Iterable[TopicPartition]) -> list[ProducerView]:
    """The producers that the leaders of some partitions remember, by partition."""
    wanted = sorted(set(places))
    return session.retrying(lambda: _describe_producers(session, wanted))


def write_abort_marker(session: Session, producer: ProducerView) -> None:
    """End the transaction of a producer in one partition, whatever its coordinator thinks."""
    place = producer.place
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        # A partition that has never seen a marker of this producer takes any.
        coordinator_epoch=producer.coordinator_epoch or 0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
    )
    request = WriteTxnMarkersRequest(markers=[marker])

    def ask(connection: BrokerConnection) -> None:
        response = connection.call(request, WriteTxnMarkersResponse, session.timeout_ms)
        result = response.markers[0].topics[0].partitions[0]
        if result.error_code:
            raise error_for_code(result.error_code)

    session.call_leader(place.topic, place.partition, ask)


def _transaction_view(state: TransactionState, coordinator: int) -> TransactionView:
    return TransactionView(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms > 0 else None,
        tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in state.topics
                for index in topic.partitions
            )
        ),
        coordinator,
    )


def _describe_producers(session: Session, places: list[TopicPartition]) -> list[ProducerView]:
    by_leader: dict[BrokerConnection, dict[str, list[int]]] = defaultdict(
        partial(defaultdict, list)
    )
    for each in places:
        by_leader[session.leader(each.topic, each.partition)][each.topic].append(each.partition)
    found = []
    for connection, topics in by_leader.items():
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ]
        )
        response = connection.call(request, DescribeProducersResponse, session.timeout_ms)
        for topic in response.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise error_for_code(part.error_code, part.error_message)
                place = TopicPartition(topic.name, part.partition_index)
                found += [_producer_view(place, each) for each in part.active_producers]
    return sorted(found, key=lambda each: (each.place, each.producer_id))


def _producer_view(place: TopicPartition, state: ProducerState) -> ProducerView:
    return ProducerView(
        place,
        state.producer_id,
        state.producer_epoch,
        _or_none(state.coordinator_epoch),
        _or_none(state.last_sequence),
        _or_none(state.last_timestamp),
        _or_none(state.current_txn_start_offset),
    )


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None
