"""A cluster in memory for clients: one broker, one topic, answers made by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from millstream.cli.session import Session
from millstream.client.addresses import Address
from millstream.errors import BrokerUnreachable, OffsetOutOfRange, UnknownTopicOrPartition
from millstream.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.protocol.messages.describe_cluster import DescribeClusterBroker
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.records import RecordBatch, RecordBatchBuilder
from millstream.types import Uuid
from tests.unit.cli.memory_selector import PLACES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message

TOPIC = "orders"


class FakeCluster:
    """What one broker has."""

    address = Address("broker", 9092)
    topic_id = Uuid(b"orders-topic-id-")

    def __init__(self, partitions: int = 1) -> None:
        self.logs: list[list[RecordBatch]] = [[] for _ in range(partitions)]
        self.starts = [0] * partitions
        self.raw: dict[int, bytes] = {}
        """By partition, what a fetch brings instead of its log."""
        self.aborted: list[list[AbortedTransaction]] = [[] for _ in range(partitions)]
        self.errors: dict[type[Message], list[Exception]] = defaultdict(list)
        """What the next calls raise instead of an answer, by request."""
        self.requests: list[Message] = []

    def session(self, *, timeout_s: float = 5.0) -> Session:
        """A session with it."""
        PLACES[self.address] = self
        return Session(str(self.address), timeout_s)

    def respond(self, request: Message) -> Message | None:
        """What the client library is answered; None hangs up, as an error of the test says."""
        self.requests.append(request)
        errors = self.errors[type(request)]
        if errors and isinstance(errors[0], BrokerUnreachable):
            errors.pop(0)
            return None
        return self._answer(request)

    def append(
        self,
        partition: int,
        *values: bytes | None,
        timestamp: int = 1000,
        producer_id: int = -1,
        batch: bytes | None = None,
    ) -> None:
        """Add a batch of these values, or one that is ready."""
        if batch is None:
            builder = RecordBatchBuilder()
            builder.extend((timestamp, None, value) for value in values)
            batch = builder.build(
                base_offset=self.end(partition),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=0 if producer_id >= 0 else -1,
                is_transactional=producer_id >= 0,
            )
        self.logs[partition].append(RecordBatch(batch))

    def end(self, partition: int) -> int:
        """The offset of the next record."""
        log = self.logs[partition]
        return log[-1].next_offset if log else self.starts[partition]

    # The broker.

    def _answer(self, request: Message) -> Message:
        match request:
            case MetadataRequest(topics=topics):
                return self._metadata(None if topics is None else [each.name for each in topics])
            case DescribeClusterRequest():
                broker = DescribeClusterBroker(
                    broker_id=1, host=self.address.host, port=self.address.port
                )
                return DescribeClusterResponse(
                    cluster_id="cluster", controller_id=1, brokers=[broker]
                )
            case ListOffsetsRequest(topics=[topic]):
                found = [
                    self._list_offset(each.partition_index, each.timestamp)
                    for each in topic.partitions
                ]
                answer = ListOffsetsTopicResponse(name=TOPIC, partitions=found)
                return ListOffsetsResponse(topics=[answer])
            case FetchRequest(topics=[topic]):
                fetched = [
                    self._fetch(each.partition, each.fetch_offset) for each in topic.partitions
                ]
                return FetchResponse(
                    responses=[FetchableTopicResponse(topic_id=self.topic_id, partitions=fetched)]
                )
        raise AssertionError(f"the test has no answer to {request}")

    def _metadata(self, names: Sequence[str | None] | None) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1])
            for index in range(len(self.logs))
        ]
        known = MetadataResponseTopic(name=TOPIC, topic_id=self.topic_id, partitions=partitions)
        topics = [
            known
            if name == TOPIC
            else MetadataResponseTopic(name=name, error_code=UnknownTopicOrPartition.code)
            for name in ([TOPIC] if names is None else names)
        ]
        broker = MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
        return MetadataResponse(
            cluster_id="cluster", controller_id=1, brokers=[broker], topics=topics
        )

    def _list_offset(self, partition: int, timestamp: int) -> ListOffsetsPartitionResponse:
        offset = -1
        if timestamp == -2:
            offset = self.starts[partition]
        elif timestamp == -1:
            offset = self.end(partition)
        else:
            for batch in self.logs[partition]:
                if batch.max_timestamp >= timestamp:
                    offset = batch.base_offset
                    break
        return ListOffsetsPartitionResponse(partition_index=partition, offset=offset, timestamp=-1)

    def _fetch(self, partition: int, offset: int) -> PartitionData:
        if partition in self.raw:
            return PartitionData(partition_index=partition, records=self.raw[partition])
        if not self.starts[partition] <= offset <= self.end(partition):
            return PartitionData(partition_index=partition, error_code=OffsetOutOfRange.code)
        found = [bytes(each.view) for each in self.logs[partition] if each.last_offset >= offset]
        return PartitionData(
            partition_index=partition,
            high_watermark=self.end(partition),
            aborted_transactions=self.aborted[partition],
            records=b"".join(found[:2]),
        )
