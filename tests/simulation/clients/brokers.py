"""Brokers that are written to, read from and coordinate transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import CoordinatorLoadInProgress, NotCoordinator
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    TxnOffsetCommitRequest,
)
from millstream.protocol.messages.api_versions import FinalizedFeatureKey, SupportedFeatureKey
from millstream.protocol.messages.find_coordinator import Coordinator
from tests.simulation.clients.fetching import Reading
from tests.simulation.clients.log import LoggedPartition
from tests.simulation.clients.transactions import SimTransactions
from tests.simulation.producer.cluster import SimCluster, offered

if TYPE_CHECKING:
    from random import Random

    from millstream.protocol.message import Message
    from millstream.records import RecordBatch
    from tests.simulation.producer.cluster import SimPartition
    from tests.simulation.producer.network import Delayed

_FEATURE = "transaction.version"


class SimBrokers(SimCluster):
    """A cluster with logs, fetch sessions and a transaction coordinator that moves."""

    def __init__(self, broker_count: int, partition_count: int, random: Random) -> None:
        super().__init__(broker_count, partition_count, 1 << 20)
        self.logs = [LoggedPartition(each.index, each.leader) for each in self.partitions]
        self.partitions = list(self.logs)
        self.reading = Reading(self.logs, random)
        self.transactions = SimTransactions(self.logs, random)
        self.coordinator = 1
        self.loading = 0
        """So many requests are told that the coordinator is not ready yet."""

    def handle(self, node: int, request: Message, version: int) -> Message | Delayed:
        """A broker's answer."""
        match request:
            case ApiVersionsRequest():
                return self._versions()
            case FetchRequest():
                return self.reading.fetch(node, request)
            case ListOffsetsRequest():
                return self.reading.list_offsets(node, request)
            case OffsetForLeaderEpochRequest():
                return self.reading.epoch_ends(node, request)
            case FindCoordinatorRequest():
                return self._find(request)
        answer = self._transactional(node, request, version)
        return super().handle(node, request, version) if answer is None else answer

    def check_batch(self, partition: SimPartition, batch: RecordBatch) -> int:
        """Transactional batches must be part of a transaction."""
        if not batch.is_transactional:
            return 0
        return self.transactions.check_batch(partition.index, batch)

    def move_coordinator(self, node: int) -> None:
        """Another broker coordinates from now on, when it has loaded what it must know."""
        self.coordinator = node
        self.loading = 2

    def _transactional(self, node: int, request: Message, version: int) -> Message | None:
        is_asked = isinstance(
            request,
            AddPartitionsToTxnRequest
            | AddOffsetsToTxnRequest
            | TxnOffsetCommitRequest
            | EndTxnRequest,
        ) or (isinstance(request, InitProducerIdRequest) and request.transactional_id is not None)
        code = self._not_responsible(node) if is_asked else 0
        match request:
            case InitProducerIdRequest() if request.transactional_id is not None:
                if code:
                    return InitProducerIdResponse(
                        error_code=code, producer_id=-1, producer_epoch=-1
                    )
                return self.transactions.initialize(request)
            case AddPartitionsToTxnRequest():
                return self.transactions.add_partitions(request, code)
            case AddOffsetsToTxnRequest():
                return self.transactions.add_offsets(request, code)
            case TxnOffsetCommitRequest():
                return self.transactions.commit_offsets(request, code)
            case EndTxnRequest():
                if code:
                    return EndTxnResponse(error_code=code)
                return self.transactions.end(request, version)
        return None

    def _not_responsible(self, node: int) -> int:
        if node != self.coordinator:
            return NotCoordinator.code
        if self.loading:
            self.loading -= 1
            return CoordinatorLoadInProgress.code
        return 0

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        node = self.coordinator
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node, host=f"broker-{node}", port=9092)
                for key in request.coordinator_keys
            ]
        )

    def _versions(self) -> ApiVersionsResponse:
        level = 2 if self.transactions.is_implicit else 1
        return ApiVersionsResponse(
            api_keys=offered(
                (
                    ApiKey.PRODUCE,
                    ApiKey.FETCH,
                    ApiKey.LIST_OFFSETS,
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    ApiKey.METADATA,
                    ApiKey.API_VERSIONS,
                    ApiKey.FIND_COORDINATOR,
                    ApiKey.INIT_PRODUCER_ID,
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    ApiKey.ADD_OFFSETS_TO_TXN,
                    ApiKey.TXN_OFFSET_COMMIT,
                    ApiKey.END_TXN,
                )
            ),
            supported_features=[SupportedFeatureKey(name=_FEATURE, min_version=0, max_version=2)],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(name=_FEATURE, max_version_level=level, min_version_level=0)
            ],
        )
