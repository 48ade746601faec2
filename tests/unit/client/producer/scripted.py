"""A producer's core in virtual time, with brokers that answer as told."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.core import ProducerCore
from millstream.clock import ManualClock
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from millstream.protocol.messages.find_coordinator import Coordinator
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.simulation.producer.cluster import TOPIC, SimCluster
from tests.simulation.producer.network import SimSelector

if TYPE_CHECKING:
    from millstream.client.producer.delivery import Delivery
    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from tests.simulation.producer.network import Delayed


class ScriptedCluster(SimCluster):
    """One that also coordinates transactions, and refuses as its script says."""

    def __init__(self, partition_count: int = 1, broker_count: int = 1) -> None:
        super().__init__(broker_count, partition_count, 1 << 20)
        self.refusals: dict[str, list[int]] = {}
        self.asked: list[tuple[str, int]] = []
        self.requests: list[Message] = []
        self.features = True
        self.highest: dict[str, int] = {}
        self.epoch = 0

    def refuse(self, api: str, *errors: type[ApiError]) -> None:
        """Answer the next requests of a kind with these."""
        self.refusals.setdefault(api, []).extend(each.code for each in errors)

    def handle(self, node: int, request: Message, version: int) -> Message | Delayed:
        """A broker's answer, or what the script says."""
        api = API_BY_KEY[request.KEY].api_name
        self.asked.append((api, version))
        self.requests.append(request)
        if api == "ApiVersions":
            return self._versions()
        script = self.refusals.get(api)
        code = script.pop(0) if script else 0
        if isinstance(request, ProduceRequest) and code:
            return self._refused_produce(node, request, code)
        made = self._transactional(request, code)
        return super().handle(node, request, version) if made is None else made

    def count(self, api: str) -> int:
        """How often a kind was asked."""
        return [name for name, _ in self.asked].count(api)

    def version(self, api: str) -> int:
        """In which version it was asked last."""
        return [version for name, version in self.asked if name == api][-1]

    def _refused_produce(self, node: int, request: ProduceRequest, code: int) -> ProduceResponse:
        for topic in request.topic_data:
            for each in topic.partition_data:
                each.index += 1000
        answer = self._produce(node, request)
        for response in answer.responses:
            for told in response.partition_responses:
                told.index -= 1000
                told.error_code = code
                told.log_start_offset = 0
        return answer

    def _transactional(self, request: Any, code: int) -> Message | None:
        match API_BY_KEY[request.KEY]:
            case ApiKey.INIT_PRODUCER_ID:
                return self._identity(request, code)
            case ApiKey.FIND_COORDINATOR:
                found = [
                    Coordinator(key=key, node_id=1, host="broker-1", port=9092)
                    for key in request.coordinator_keys
                ]
                return FindCoordinatorResponse(coordinators=found)
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                return _added(request, code)
            case ApiKey.ADD_OFFSETS_TO_TXN:
                return AddOffsetsToTxnResponse(error_code=code)
            case ApiKey.TXN_OFFSET_COMMIT:
                return _committed(request, code)
            case ApiKey.END_TXN:
                return self._ended(request, code)
        return None

    def _identity(self, request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
        if code:
            return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        if request.producer_id >= 0:
            self.epoch = request.producer_epoch + 1
        return InitProducerIdResponse(producer_id=77, producer_epoch=self.epoch)

    def _ended(self, request: EndTxnRequest, code: int) -> EndTxnResponse:
        if code or not self.features:
            return EndTxnResponse(error_code=code)
        self.epoch = request.producer_epoch + 1
        return EndTxnResponse(producer_id=77, producer_epoch=self.epoch)

    def _versions(self) -> ApiVersionsResponse:
        apis = [
            ApiKey.PRODUCE,
            ApiKey.METADATA,
            ApiKey.API_VERSIONS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.FIND_COORDINATOR,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
        ]
        name = "transaction.version"
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=int(api),
                    min_version=api.released.lowest,
                    max_version=self.highest.get(api.api_name, api.released.highest),
                )
                for api in apis
            ],
            supported_features=[SupportedFeatureKey(name=name, min_version=0, max_version=2)],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(
                    name=name, max_version_level=2 if self.features else 1, min_version_level=0
                )
            ],
        )


def _added(request: Any, code: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _committed(request: Any, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Desk:
    """A producer's core whose time is ours."""

    def __init__(self, cluster: ScriptedCluster | None = None, **settings: Any) -> None:
        self.cluster = cluster or ScriptedCluster()
        self.clock = ManualClock()
        self.selector = SimSelector(self.cluster, self.clock, Random(1))
        self.selector.delay_ms_max = 1
        given = {"bootstrap_servers": ("broker-1:9092",), "linger_ms": 0, **settings}
        self.core = ProducerCore(
            ProducerConfig(**given), selector=self.selector, clock=self.clock, random=Random(2)
        )
        waiting = self.core.wait_for_topic(TOPIC, -1)
        self.turn(waiting.done)

    def turn(self, is_done: Any, limit_ms: int = 300_000) -> None:
        """Let time pass until something is so."""
        end_ms = self.clock.monotonic_ms() + limit_ms
        while not is_done():
            assert self.clock.monotonic_ms() < end_ms, "it did not happen"
            self.core.runtime.run_once(100)

    def pass_ms(self, ms: int) -> None:
        """Let some time pass, whatever happens."""
        end_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < end_ms:
            self.core.runtime.run_once(max(1, end_ms - self.clock.monotonic_ms()))

    def append(self, value: bytes = b"v", partition: int = 0) -> Delivery:
        """Send a record."""
        return self.core.accumulator.append(TOPIC, partition, None, value)

    def send(self, value: bytes = b"v", partition: int = 0) -> Delivery:
        """Send a record and wait for its end."""
        delivery = self.append(value, partition)
        self.turn(delivery.done)
        return delivery

    def finish(self, waiter: Any) -> None:
        """Wait for an operation; raises as it does."""
        self.turn(waiter.done)
        waiter.result(0)
