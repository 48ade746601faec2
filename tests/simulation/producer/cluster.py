"""Brokers as a producer sees them: logs, leaders that move, and producers by their numbers.

The logs are those of acks=all: what was acknowledged once stays, whoever leads. Checks of numbers
are a broker's own: a repetition is answered with its first place, a gap is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import (
    InvalidProducerEpoch,
    MessageTooLarge,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownTopicOrPartition,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.protocol.messages.api_versions import ApiVersion
from millstream.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from millstream.records import RecordBatch
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.message import Message
    from tests.simulation.producer.network import Delayed

TOPIC = "topic"
TOPIC_ID = Uuid(b"topic-id".ljust(16, b"\1"))
SEQUENCES = 1 << 31
REMEMBERED_BATCHES = 5


@dataclass
class ProducerEntry:
    """What a partition knows of one producer id."""

    epoch: int = -1
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(first sequence, last sequence, offset) of the last few."""


@dataclass
class SimPartition:
    """One partition: its leader and its records."""

    index: int
    leader: int
    epoch: int = 0
    values: list[bytes] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)

    def append(self, batch: RecordBatch, size_max: int) -> tuple[int, int]:
        """(error code, base offset). What is written passes through `write`."""
        if batch.size > size_max:
            return MessageTooLarge.code, -1
        if batch.producer_id >= 0:
            found = self._check_numbers(batch)
            if found is not None:
                return found
        offset = self.write(batch)
        if batch.producer_id >= 0:
            self._remember(batch, offset)
        return 0, offset

    def write(self, batch: RecordBatch) -> int:
        """Keep the records of a batch; the offset of the first."""
        offset = len(self.values)
        self.values += [record.value or b"" for record in batch.records()]
        return offset

    def _check_numbers(self, batch: RecordBatch) -> tuple[int, int] | None:
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            return None
        if batch.producer_epoch < entry.epoch:
            return InvalidProducerEpoch.code, -1
        if batch.producer_epoch > entry.epoch:
            return None if batch.base_sequence == 0 else (OutOfOrderSequenceNumber.code, -1)
        for first, last, offset in entry.batches:
            if (batch.base_sequence, batch.last_sequence) == (first, last):
                return 0, offset
        expected = (entry.batches[-1][1] + 1) % SEQUENCES if entry.batches else 0
        return None if batch.base_sequence == expected else (OutOfOrderSequenceNumber.code, -1)

    def _remember(self, batch: RecordBatch, offset: int) -> None:
        entry = self.producers.setdefault(batch.producer_id, ProducerEntry())
        if batch.producer_epoch != entry.epoch:
            entry.epoch, entry.batches = batch.producer_epoch, []
        entry.batches.append((batch.base_sequence, batch.last_sequence, offset))
        del entry.batches[:-REMEMBERED_BATCHES]


class SimCluster:
    """Brokers 1 to n at "broker-<id>"; each may be down."""

    def __init__(self, broker_count: int, partition_count: int, batch_bytes_max: int) -> None:
        self.brokers = list(range(1, broker_count + 1))
        self.down: set[int] = set()
        self.partitions = [
            SimPartition(index, self.brokers[index % broker_count])
            for index in range(partition_count)
        ]
        self.batch_bytes_max = batch_bytes_max
        self.hints = True
        self._next_producer_id = 1000

    def handle(self, node: int, request: Message, version: int) -> Message | Delayed:
        """A broker's answer."""
        match request:
            case ApiVersionsRequest():
                return _versions()
            case MetadataRequest():
                return self._metadata()
            case InitProducerIdRequest():
                self._next_producer_id += 1
                return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
            case ProduceRequest():
                return self._produce(node, request)
        raise AssertionError(f"nobody has asked for {request}")

    def _metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each, host=f"broker-{each}", port=9092)
                for each in self.brokers
            ],
            controller_id=1,
            cluster_id="sim",
            topics=[
                MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=TOPIC_ID,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=each.index,
                            leader_id=each.leader,
                            leader_epoch=each.epoch,
                            replica_nodes=self.brokers,
                            isr_nodes=self.brokers,
                        )
                        for each in self.partitions
                    ],
                )
            ],
        )

    def _produce(self, node: int, request: ProduceRequest) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            partitions = [
                self._append(node, each.index, each.records) for each in topic.partition_data
            ]
            responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
                )
            )
        hinted = {
            each.current_leader.leader_id
            for topic in responses
            for each in topic.partition_responses
            if each.current_leader is not None and each.current_leader.leader_id >= 0
        }
        return ProduceResponse(
            responses=responses,
            node_endpoints=[
                NodeEndpoint(node_id=each, host=f"broker-{each}", port=9092) for each in hinted
            ],
        )

    def check_batch(self, partition: SimPartition, batch: RecordBatch) -> int:
        """The error code that a batch is refused with, whatever its number; 0 if it is not."""
        return 0

    def _append(self, node: int, index: int, records: object) -> PartitionProduceResponse:
        if index >= len(self.partitions):
            return PartitionProduceResponse(index=index, error_code=UnknownTopicOrPartition.code)
        partition = self.partitions[index]
        if partition.leader != node:
            answer = PartitionProduceResponse(index=index, error_code=NotLeaderOrFollower.code)
            if self.hints:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.epoch
                )
            return answer
        assert isinstance(records, bytes | memoryview)
        batch = RecordBatch(bytes(records))
        batch.check_crc()
        code, offset = self.check_batch(partition, batch), -1
        if not code:
            code, offset = partition.append(batch, self.batch_bytes_max)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

    def move_leader(self, index: int, leader: int) -> None:
        """Another broker leads a partition from now on."""
        partition = self.partitions[index]
        partition.leader = leader
        partition.epoch += 1


def _versions() -> ApiVersionsResponse:
    apis = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)
    return ApiVersionsResponse(api_keys=offered(apis))


def offered(apis: Iterable[ApiKey]) -> list[ApiVersion]:
    """Every released version of some requests."""
    return [
        ApiVersion(
            api_key=int(api), min_version=api.released.lowest, max_version=api.released.highest
        )
        for api in apis
    ]
