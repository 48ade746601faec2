"""A controller with a log in memory and a clock by hand: what the controller's tests stand on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.controller.config import ControllerConfig
from millstream.controller.decision import RequestContext
from millstream.controller.quorum_controller import QuorumController
from millstream.errors import KafkaStorageError, NotController
from millstream.metadata.bootstrap import bootstrap_metadata
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from millstream.metadata.records import MetadataBatch, encode_record
from millstream.protocol.messages import broker_heartbeat, broker_registration, create_topics
from millstream.protocol.messages.config_records import FeatureLevelRecord
from millstream.protocol.messages.log_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
)
from millstream.protocol.messages.topic_records import PartitionChangeRecord
from millstream.protocol.records_framing import decode_metadata_record
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.controller.controls import ControllerSeams
    from millstream.metadata.records import VersionedRecord
    from millstream.metadata.topics import PartitionRegistration
    from millstream.protocol.message import Message
    from millstream.storage.log.config import LogConfig

T = TypeVar("T")

CLUSTER_ID = "TestClusterTestCluster"
WALL_MS = 1_700_000_000_000
SESSION_MS = 9000


def directory(broker_id: int, number: int = 0) -> Uuid:
    """The id of a broker's directory."""
    return Uuid(bytes([1, broker_id, number]) + bytes(13))


def incarnation(number: int) -> Uuid:
    """An incarnation id."""
    return Uuid(bytes([2, number]) + bytes(14))


class MemoryLog:
    """A metadata log that keeps batches; nothing is committed until somebody says so."""

    def __init__(self) -> None:
        self.batches: list[MetadataBatch] = []
        self.epoch = 0
        self.end_offset = 0
        self.resigned: list[int] = []
        self.kraft_version = 0
        self.obstacle: Exception | None = None
        self.skew = 0
        """Set to make appended records land elsewhere than asked."""
        self.on_append: Callable[[int], None] = lambda last_offset: None
        """Called inside of `append`, as a log that commits or fails at once would."""

    def next_offset(self) -> int:
        return self.end_offset

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> int:
        if epoch != self.epoch:
            raise NotController
        if self.obstacle is not None:
            raise KafkaStorageError(str(self.obstacle))
        # Through bytes, so that a record that its version cannot carry is found here.
        decoded = [decode_metadata_record(encode_record(each))[0] for each in records]
        self.batches.append(
            MetadataBatch(self.end_offset + self.skew, epoch, WALL_MS, 100, decoded)
        )
        self.end_offset += len(records) + self.skew
        self.on_append(self.end_offset - 1)
        return self.end_offset - 1

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        if not validate_only:
            self.kraft_version = level

    @property
    def records(self) -> list[Message]:
        return [record for batch in self.batches for record in batch.records]


def replayed(records: Sequence[Message]) -> MetadataImage:
    """The image that a whole log gives, read from the start."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        if not isinstance(record, BeginTransactionRecord | EndTransactionRecord):
            delta.replay(record)
    return delta.apply(MetadataProvenance())


class Rig:
    """One controller, active unless told otherwise. `ask` commits at once, `submit` does not."""

    def __init__(
        self,
        brokers: Sequence[int] = (),
        *,
        metadata_version: int = 30,
        features: dict[str, int] | None = None,
        racks: dict[int, str] | None = None,
        seams: ControllerSeams | None = None,
        topic_defaults: LogConfig | None = None,
        seed: int = 1,
        is_active: bool = True,
        **config: Any,
    ) -> None:
        self.log = MemoryLog()
        self.log.epoch = 1
        self.now_ms = 0
        self.faults: list[tuple[str, Exception]] = []
        self.controller = QuorumController(
            node_id=100,
            cluster_id=CLUSTER_ID,
            config=ControllerConfig(**config),
            log=self.log,
            bootstrap=bootstrap_metadata(metadata_version, features=features),
            random=Random(seed),
            topic_defaults=topic_defaults,
            seams=seams,
            on_fault=lambda problem, error: self.faults.append((problem, error)),
        )
        if is_active:
            self.controller.on_leader(1, self.now_ms, WALL_MS)
            self.commit()
        for broker_id in brokers:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.beat(broker_id)

    @property
    def image(self) -> MetadataImage:
        return self.controller.uncommitted_image

    def commit(self) -> None:
        """Everything in the log is committed."""
        self.controller.on_committed(self.log.end_offset - 1)

    def context(self, version: int, principal: str = "User:alice") -> RequestContext:
        return RequestContext(principal, self.now_ms, WALL_MS + self.now_ms, version, "client")

    def submit(
        self, request: Message, version: int | None = None, principal: str = "User:alice"
    ) -> list[Any]:
        """Hand in a request; the list gets the answer when it comes."""
        answers: list[Any] = []
        if version is None:
            version = type(request).VERSIONS.highest
        self.controller.handle(request, self.context(version, principal), answers.append)
        return answers

    def ask(
        self, request: Message, version: int | None = None, principal: str = "User:alice"
    ) -> Any:
        """Hand in a request, commit, and give the answer, which its version can carry."""
        answers = self.submit(request, version, principal)
        self.commit()
        assert len(answers) == 1, answers
        assert not self.faults, self.faults
        answers[0].encode(type(request).VERSIONS.highest if version is None else version)
        return answers[0]

    def records_of(self, request: Message, version: int | None = None) -> list[Message]:
        """The records that a request causes."""
        before = len(self.log.records)
        self.ask(request, version)
        return self.log.records[before:]

    def tick(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.controller.tick(self.now_ms, WALL_MS + self.now_ms)
        self.commit()

    def registration(
        self, broker_id: int, *, incarnation_number: int = 1, **changes: Any
    ) -> broker_registration.BrokerRegistrationRequest:
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": incarnation(incarnation_number),
            "listeners": [
                broker_registration.Listener(name="PLAINTEXT", host=f"b{broker_id}", port=9092)
            ],
            "features": [
                broker_registration.Feature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in SUPPORTED_FEATURES.items()
            ],
            "rack": None,
            "log_dirs": [directory(broker_id)],
        }
        return broker_registration.BrokerRegistrationRequest(**(fields | changes))

    def register(self, broker_id: int, **changes: Any) -> int:
        """Register a broker; its epoch."""
        response = self.ask(self.registration(broker_id, **changes))
        assert response.error_code == 0, response
        epoch: int = response.broker_epoch
        return epoch

    def epoch_of(self, broker_id: int) -> int:
        return self.image.cluster.brokers[broker_id].epoch

    def beat(self, broker_id: int, **changes: Any) -> broker_heartbeat.BrokerHeartbeatResponse:
        """A heartbeat of a broker that has seen everything."""
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": self.epoch_of(broker_id),
            "current_metadata_offset": self.log.end_offset - 1,
        }
        response: broker_heartbeat.BrokerHeartbeatResponse = self.ask(
            broker_heartbeat.BrokerHeartbeatRequest(**(fields | changes))
        )
        return response

    def fence(self, broker_id: int) -> None:
        assert self.beat(broker_id, want_fence=True).is_fenced

    def create(
        self,
        name: str,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        partitions: int = -1,
        factor: int = -1,
        **configs: str,
    ) -> create_topics.CreatableTopicResult:
        """Create a topic; settings are given with underscores for dots."""
        result: create_topics.CreatableTopicResult = self.ask(
            create_topics.CreateTopicsRequest(
                topics=[new_topic(name, assignments, partitions, factor, configs)]
            )
        ).topics[0]
        return result

    def topic_id(self, name: str) -> Uuid:
        return self.image.topics.by_name[name].id

    def partition(self, name: str, partition_id: int = 0) -> PartitionRegistration:
        return self.image.topics.by_name[name].partitions[partition_id]

    def force(self, name: str, partition_id: int = 0, **change: Any) -> None:
        """Write a partition change into the log as if a decision had made it."""
        term = self.controller._term
        assert term is not None
        record = PartitionChangeRecord(
            topic_id=self.topic_id(name), partition_id=partition_id, **change
        )
        self.controller._append(term, [record], WALL_MS)
        self.commit()

    def force_level(self, feature: str, level: int) -> None:
        """Write a feature's level into the log as a controller of another kind might have."""
        term = self.controller._term
        assert term is not None
        record = FeatureLevelRecord(name=feature, feature_level=level)
        self.controller._append(term, [record], WALL_MS)
        self.commit()


def new_topic(
    name: str,
    assignments: Sequence[Sequence[int]] | None = None,
    partitions: int = -1,
    factor: int = -1,
    configs: dict[str, str] | None = None,
) -> create_topics.CreatableTopic:
    """A topic of a CreateTopics request."""
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(
                partition_index=index, broker_ids=list(replicas)
            )
            for index, replicas in enumerate(assignments or ())
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in (configs or {}).items()
        ],
    )
