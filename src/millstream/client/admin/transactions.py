"""Transactions and producers: list, describe, end what hangs, fence who is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.admin.partitions import require_version
from millstream.client.router import Coordinator, Node
from millstream.errors import MillstreamError, error_for_code
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.router import Target
    from millstream.protocol.messages.describe_transactions import TransactionState

_FENCING_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transaction in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int | None = None
    """The broker that coordinates it."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and what it is doing."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """When the transaction began, in milliseconds since 1970; None if none is open."""
    partitions: frozenset[TopicPartition]
    coordinator: int | None = None
    """The broker that coordinates it."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that has written to a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None
    """Where its open transaction begins; None if none is open."""


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer id and the epoch it is at."""

    producer_id: int
    producer_epoch: int


class TransactionOperations(Operations):
    """Operations on transactions and producers."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration: float | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Transactions of all coordinators; those in the given states, open for so many seconds.

        `pattern` is a regular expression on the whole id, as the brokers have it.
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)
        duration_ms = -1 if min_duration is None else round(min_duration * 1000)

        def request(_nodes: Sequence[int]) -> VersionedRequest:
            def build(version: int) -> ListTransactionsRequest:
                needed = 2 if pattern is not None else 1 if min_duration is not None else 0
                require_version("ListTransactions", needed, version)
                return ListTransactionsRequest(
                    state_filters=wanted_states,
                    producer_id_filters=wanted_ids,
                    duration_filter=duration_ms,
                    transactional_id_pattern=pattern,
                )

            return VersionedRequest(ApiKey.LIST_TRANSACTIONS, build)

        def read(
            answer: ListTransactionsResponse, nodes: Sequence[int]
        ) -> dict[int, list[TransactionListing] | MillstreamError]:
            raise_for(answer)
            return {
                nodes[0]: [
                    TransactionListing(name, each.producer_id, each.transaction_state, nodes[0])
                    for each in answer.transaction_states
                    if (name := self._names.from_wire(each.transactional_id)) is not None
                ]
            }

        brokers = await self._brokers(timeout)
        found = await self._each(brokers, Node, request, read, timeout, per_request=1)
        listed = [each for node in found.raise_first().results.values() for each in node]
        return sorted(listed, key=lambda each: each.transactional_id)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """What transactional ids are doing."""

        def request(names: Sequence[str]) -> DescribeTransactionsRequest:
            wire_names = [self._names.to_wire(each) for each in names]
            return DescribeTransactionsRequest(transactional_ids=wire_names)

        def read(
            answer: DescribeTransactionsResponse, _names: Sequence[str]
        ) -> dict[str, TransactionDescription | MillstreamError]:
            return {
                name: error_or(self._described(name, each), each.error_code)
                for each in answer.transaction_states
                if (name := self._names.from_wire(each.transactional_id)) is not None
            }

        return await self._each(
            transactional_ids, self._transaction_coordinator, request, read, timeout
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that partitions remember, as their leaders know them."""

        def request(items: Sequence[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in self._by_wire_topic(items).items()
                ]
            )

        def read(
            answer: DescribeProducersResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | MillstreamError]:
            return {
                self._partition(topic.name, each.partition_index): error_or(
                    tuple(
                        ProducerState(
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.last_sequence,
                            _or_none(producer.last_timestamp),
                            _or_none(producer.coordinator_epoch),
                            _or_none(producer.current_txn_start_offset),
                        )
                        for producer in each.active_producers
                    ),
                    each.error_code,
                    each.error_message,
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(partitions, self._leader, request, read, timeout)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
        timeout: float | None = None,
    ) -> None:
        """Write an abort marker for a transaction that hangs, past its coordinator.

        `describe_producers` has the numbers. For a transaction that its coordinator knows,
        `fence_producers` is the way.
        """

        def request(items: Sequence[TopicPartition]) -> WriteTxnMarkersRequest:
            topics = [
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in self._by_wire_topic(items).items()
            ]
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=coordinator_epoch,
            )
            return WriteTxnMarkersRequest(markers=[marker])

        def read(
            answer: WriteTxnMarkersResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            return {
                self._partition(topic.name, each.partition_index): error_or(None, each.error_code)
                for marker in answer.markers
                for topic in marker.topics
                for each in topic.partitions
            }

        found = await self._each([partition], self._leader, request, read, timeout)
        found.raise_first()

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, ProducerIdAndEpoch]:
        """Take transactional ids away from whoever has them; open transactions are aborted."""

        def request(names: Sequence[str]) -> InitProducerIdRequest:
            return InitProducerIdRequest(
                transactional_id=self._names.to_wire(names[0]),
                transaction_timeout_ms=_FENCING_TIMEOUT_MS,
            )

        def read(
            answer: InitProducerIdResponse, names: Sequence[str]
        ) -> dict[str, ProducerIdAndEpoch | MillstreamError]:
            if answer.error_code:
                raise error_for_code(answer.error_code)
            return {names[0]: ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)}

        return await self._each(
            transactional_ids,
            self._transaction_coordinator,
            request,
            read,
            timeout,
            per_request=1,
        )

    def _transaction_coordinator(self, transactional_id: str) -> Target:
        return Coordinator("transaction", self._names.to_wire(transactional_id))

    def _described(self, name: str, told: TransactionState) -> TransactionDescription:
        partitions = frozenset(
            TopicPartition(topic_name, index)
            for topic in told.topics
            if (topic_name := self._names.from_wire(topic.topic)) is not None
            for index in topic.partitions
        )
        return TransactionDescription(
            name,
            told.transaction_state,
            told.producer_id,
            told.producer_epoch,
            told.transaction_timeout_ms,
            _or_none(told.transaction_start_time_ms),
            partitions,
            self._runtime.router.coordinator("transaction", told.transactional_id),
        )


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None
