"""A broker without sockets: real handlers, replicas, logs and controller, on one thread.

The controller commits at once and its image reaches the broker at once, unless the channel is told
to hold back. The disk is simulated, time stands still, and what is deferred waits until `settle`.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.clock import ManualClock
from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.errors import BrokerUnreachable
from millstream.metadata.cache import KRaftMetadataCache
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.metadata.image import MetadataProvenance
from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest, ManifestKind
from millstream.network.server.request import Request
from millstream.node.coordinators import BrokerCoordinators, CoordinatorConfigs
from millstream.node.share_coordinators import ShareConfigs
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.frame import SIZE_BYTES, encode_request
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.protocol.messages.log_records import BeginTransactionRecord, EndTransactionRecord
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.replica.config import ReplicaConfig
from millstream.replica.replica_manager import ReplicaManager
from millstream.server.config import ServerConfig
from millstream.server.kafka_apis import KafkaApis
from millstream.storage.background import Background
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import Uuid
from tests.unit.controller.rig import Rig, new_topic
from tests.unit.server.fakes import Call, Channel, Client, NoIsrChanges, Settings, Sink
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.manager_harness import InlineExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.clock import Clock
    from millstream.errors import MillstreamError
    from millstream.protocol.message import Message
    from millstream.replica.partition import Partition
    from millstream.storage.filesystem import FileSystem

MessageT = TypeVar("MessageT", bound="Message")

NODE_ID = 1
CLUSTER_ID = "TestClusterTestCluster"
INTERNAL_PARTITIONS = 3
"""Of each topic of the coordinators; hundreds of tests make them, and fifty take a while."""
COORDINATORS = CoordinatorConfigs(
    GroupConfig(offsets_topic_num_partitions=INTERNAL_PARTITIONS),
    ConsumerGroupConfig(),
    TransactionConfig(partition_count=INTERNAL_PARTITIONS),
    ShareConfigs(states=ShareCoordinatorConfig(partition_count=INTERNAL_PARTITIONS)),
)


class NoPeers:
    """This broker is the only one: nobody else can be reached."""

    def send(
        self, broker_id: int, request: Message, done: Callable[[Message | MillstreamError], None]
    ) -> None:
        """See `node.peer_calls.Peers`."""
        done(BrokerUnreachable(f"there is no broker {broker_id}"))

    def close(self) -> None:
        """Nothing is open."""


class Broker:
    """Everything behind a listener."""

    def __init__(
        self,
        *,
        config: ServerConfig | None = None,
        given: Mapping[str, str] | None = None,
        directories: tuple[str, ...] = ("/disk1",),
        filesystem: FileSystem | None = None,
        brokers: Sequence[int] = (NODE_ID,),
        with_telemetry: bool = True,
        fetch_session_slots: int = 1000,
        clock: Clock | None = None,
        **controller: Any,
    ) -> None:
        self.manual_clock = ManualClock(NOW_MS)
        self.clock: Clock = clock or self.manual_clock
        self.events: deque[Callable[[], None]] = deque()
        self.metadata = KRaftMetadataCache()
        self.settings = Settings(given=given or {})
        self.sink = Sink()
        self.channel = Channel(self)
        self._published = 0
        self.logs = self._make_logs(filesystem or SimFileSystem(Random(1)), directories)
        self.controller = Rig([each for each in brokers if each != NODE_ID], **controller)
        self.controller.register(
            NODE_ID,
            log_dirs=sorted(each.directory_id or Uuid.ZERO for each in self.logs.directories),
        )
        self.controller.beat(NODE_ID)
        self.replicas = ReplicaManager(
            ReplicaConfig(fetch_session_slots=fetch_session_slots),
            broker_id=NODE_ID,
            store=self.logs,
            cache=self.metadata,
            clock=self.clock,
            random=Random(4),
            defer=self.events.append,
            arm=lambda _: None,
            alterer=NoIsrChanges(),
        )
        self.coordinators = self._make_coordinators(given or {})
        self.apis = KafkaApis(
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            config=config or ServerConfig(),
            settings=self.settings,
            topic_defaults=LogConfig,
            metadata=self.metadata,
            replicas=self.replicas,
            logs=self.logs,
            controller=self.channel,
            broker_epoch=lambda: self.controller.epoch_of(NODE_ID),
            features=SUPPORTED_FEATURES,
            clock=self.clock,
            random=Random(5),
            defer=self.events.append,
            coordinators=self.coordinators.facades,
            telemetry=self.sink if with_telemetry else None,
        )
        self.publish()

    def _make_coordinators(self, given: Mapping[str, str]) -> BrokerCoordinators:
        return BrokerCoordinators(
            NODE_ID,
            COORDINATORS,
            given=given,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=self.channel,
            make_peers=NoPeers,
            broker_epoch=lambda: self.controller.epoch_of(NODE_ID),
            clock=self.clock,
            random=Random(6),
            defer=self.events.append,
            call_later=lambda _, call: self.events.append(call),
            arm=lambda _: None,
        )

    def _make_logs(self, filesystem: FileSystem, directories: tuple[str, ...]) -> LogManager:
        random = Random(3)
        for path in directories:
            format_directory(filesystem, path, CLUSTER_ID, NODE_ID, random)
        logs = LogManager(
            LogManagerConfig(log_dirs=directories),
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            filesystem=filesystem,
            clock=self.clock,
            random=Random(2),
            background=Background(
                self.events.append, lambda _: self.events.append, lambda _: InlineExecutor()
            ),
            config_for=self._log_config,
            on_directory_failure=lambda failure: self.replicas.fail_directory(failure),
        )
        logs.start()
        return logs

    def _log_config(self, topic: str) -> LogConfig:
        from millstream.config import parse

        return parse(LogConfig, self.metadata.topic_config(topic))

    def publish(self) -> None:
        """What the controller has decided is committed, and reaches the broker."""
        self.controller.commit()
        records = [
            record
            for record in self.controller.log.records[self._published :]
            if not isinstance(record, BeginTransactionRecord | EndTransactionRecord)
        ]
        self._published = len(self.controller.log.records)
        if not records:
            return
        delta = MetadataDelta(self.metadata.image)
        delta.replay_all(records)
        image = delta.apply(MetadataProvenance(self._published - 1, 1, NOW_MS))
        self.metadata.image = image
        if delta.touches("topics"):
            self.replicas.apply(delta.topics, image.topics)
        manifest = LoaderManifest(ManifestKind.LOG_DELTA, image.provenance, LeaderAndEpoch(1, 1))
        self.coordinators.publisher.publish(delta, image, manifest)

    def settle(self) -> None:
        """Let everything deferred happen."""
        while self.events:
            self.events.popleft()()

    def pass_time(self, ms: int) -> None:
        """Let time pass, and what becomes due happen."""
        self.manual_clock.advance(ms)
        self.replicas.tick()
        self.coordinators.tick()
        self.settle()

    # Requests.

    def call(
        self,
        message: Message,
        version: int | None = None,
        *,
        client: Client | None = None,
        client_id: str | None = "tests",
        apis: Any = None,
    ) -> Call:
        """Send a request; the answer may come later."""
        if version is None:
            version = type(message).RELEASED.highest
        request = frame_request(encode_request(message, version, 77, client_id), client)
        return Call(request, (apis or self.apis).handle(request))

    def ask(self, message: Message, version: int | None = None, **how: Any) -> Any:
        """Send a request that is answered at once, or at the end of the loop's turn."""
        call = self.call(message, version, **how)
        if call.is_pending:
            self.settle()
        assert not call.is_pending, message
        return call.response

    def create(self, name: str = "orders", partitions: int = 1, **configs: str) -> Uuid:
        """A topic; settings are given with underscores for dots."""
        topic = new_topic(name, None, partitions, 1, configs)
        answer = self.ask(CreateTopicsRequest(topics=[topic])).topics[0]
        assert answer.error_code == 0, answer
        topic_id: Uuid = answer.topic_id
        return topic_id

    def produce(
        self, records: bytes | None = None, version: int = 13, *, acks: int = -1, **where: Any
    ) -> ProduceResponse:
        """Append a batch of one record, or the one given."""
        request = self.produce_request(records, acks=acks, **where)
        response: ProduceResponse = self.ask(request, version)
        return response

    def produce_request(
        self,
        records: bytes | None = None,
        *,
        topic: str = "orders",
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 1000,
    ) -> ProduceRequest:
        """A request for one partition."""
        return ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self.metadata.topic_id(topic) or Uuid.ZERO,
                    partition_data=[
                        PartitionProduceData(index=partition, records=records or batch_bytes())
                    ],
                )
            ],
        )

    def fetch_request(
        self,
        *offsets: int,
        topic: str = "orders",
        max_wait_ms: int = 0,
        partition_max_bytes: int = 1 << 20,
        **changes: Any,
    ) -> FetchRequest:
        """A request for partitions 0, 1, ... from these offsets on."""
        fields: dict[str, Any] = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [
                FetchTopic(
                    topic=topic,
                    topic_id=self.metadata.topic_id(topic) or Uuid.ZERO,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            fetch_offset=offset,
                            partition_max_bytes=partition_max_bytes,
                        )
                        for index, offset in enumerate(offsets)
                    ],
                )
            ]
            if offsets
            else [],
        }
        return FetchRequest(**(fields | changes))

    def fetch(self, *offsets: int, version: int = 18, **changes: Any) -> FetchResponse:
        """Fetch, and get an answer at once."""
        response: FetchResponse = self.ask(self.fetch_request(*offsets, **changes), version)
        return response

    def partition(self, topic: str = "orders", index: int = 0) -> Partition:
        """A partition that must be here."""
        return self.replicas.partition(topic, index)


def frame_request(frame: bytes, client: Client | None = None) -> Request:
    """A request as the network makes it of a frame: in a writable buffer, not at its start."""
    from millstream.network.server.header import body_start, unpack_header

    padding = 32
    buffer = memoryview(bytearray(bytes(padding) + frame + bytes(padding)))
    end = padding + len(frame)
    _, api, correlation_id, client_id_length = unpack_header(buffer, padding)
    key, version = api >> 16, api & 0xFFFF
    header_version = API_BY_KEY[key].request_header_version(version) if key in API_BY_KEY else 1
    body = body_start(buffer, padding, end, {api: header_version})
    return Request(
        client or Client(),
        buffer,
        padding + SIZE_BYTES,
        body,
        end,
        key,
        version,
        correlation_id,
        client_id_length,
        0,
    )
