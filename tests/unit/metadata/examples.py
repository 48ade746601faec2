"""Records and an image that has something of everything, for the tests of metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from millstream.protocol.messages import broker_records as broker
from millstream.protocol.messages import config_records as config
from millstream.protocol.messages import security_records as security
from millstream.protocol.messages import topic_records as topic
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.protocol.message import Message


def uuid(number: int) -> Uuid:
    """A readable id."""
    return Uuid(bytes([7, 0, number]) + bytes(13))


T, U = uuid(1), uuid(2)
DIRECTORY = uuid(50)


def register(
    broker_id: int, *, epoch: int = 10, fenced: bool = False
) -> broker.RegisterBrokerRecord:
    """A broker with two listeners."""
    return broker.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid(100 + broker_id),
        broker_epoch=epoch,
        end_points=[
            broker.BrokerEndpoint(name="PLAIN", host=f"b{broker_id}", port=9092),
            broker.BrokerEndpoint(name="SSL", host=f"b{broker_id}", port=9093, security_protocol=1),
        ][: 1 + broker_id % 2],
        features=[broker.BrokerFeature(name="metadata.version", max_supported_version=30)],
        rack="r1" if broker_id == 1 else None,
        fenced=fenced,
        log_dirs=[uuid(50 + broker_id)],
    )


def partition(
    topic_id: Uuid, number: int, replicas: list[int], *, leader: int | None = None
) -> topic.PartitionRecord:
    """A partition with all replicas in sync."""
    return topic.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0] if leader is None else leader,
        leader_epoch=3,
        partition_epoch=4,
        directories=[uuid(50 + each) for each in replicas],
    )


def partition_in_trouble() -> topic.PartitionRecord:
    """A partition with something in each of its fields."""
    eligible = partition(T, 1, [1, 2, 3])
    eligible.isr = [1]
    eligible.eligible_leader_replicas = [2]
    eligible.last_known_elr = [3]
    eligible.removing_replicas = [3]
    eligible.leader_recovery_state = 1
    return eligible


def everything() -> list[Message]:
    """Records of every kind that lasts."""
    cordoned = register(3)
    cordoned.cordoned_log_dirs = [uuid(53)]
    return [
        config.FeatureLevelRecord(name="metadata.version", feature_level=30),
        config.FeatureLevelRecord(name="group.version", feature_level=1),
        register(1),
        register(2, fenced=True),
        cordoned,
        broker.RegisterControllerRecord(
            controller_id=9,
            incarnation_id=uuid(9),
            end_points=[broker.ControllerEndpoint(name="C", host="c", port=1)],
            features=[broker.ControllerFeature(name="kraft.version", max_supported_version=1)],
        ),
        topic.TopicRecord(name="t", topic_id=T),
        partition(T, 0, [1, 2]),
        partition_in_trouble(),
        topic.TopicRecord(name="u", topic_id=U),
        partition(U, 0, [3]),
        config.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        config.ConfigRecord(resource_type=4, resource_name="", name="x", value="y"),
        config.ClientQuotaRecord(
            entity=[
                config.EntityData(entity_type="client-id", entity_name="c"),
                config.EntityData(entity_type="user", entity_name=None),
            ],
            key="producer_byte_rate",
            value=5.0,
        ),
        config.ClientQuotaRecord(
            entity=[config.EntityData(entity_type="user", entity_name="alice")],
            key="request_percentage",
            value=1.5,
        ),
        config.ProducerIdsRecord(broker_id=1, broker_epoch=10, next_producer_id=1000),
        security.AccessControlEntryRecord(
            id=uuid(70),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        ),
        security.UserScramCredentialRecord(
            name="alice",
            mechanism=1,
            salt=b"salt",
            stored_key=b"stored",
            server_key=b"server",
            iterations=4096,
        ),
        security.DelegationTokenRecord(
            owner="User:alice",
            requester="User:bob",
            renewers=["User:carol"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="token",
        ),
    ]


def image_of(
    *records: Message, base: MetadataImage = EMPTY_IMAGE, offset: int = 0
) -> MetadataImage:
    """The image after records."""
    delta = MetadataDelta(base)
    delta.replay_all(records)
    return delta.apply(MetadataProvenance(offset, 1, 1000))
