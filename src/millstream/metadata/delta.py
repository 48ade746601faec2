"""`MetadataDelta`: records on top of an image, and the image that comes of it.

The loader and the controller replay through here, so that both come to the same state. The cost is
that of the records, not that of the image. Each record type has its line in `_REPLAY`; a type that
has none there is refused.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from millstream.metadata.acls import AclsDelta
from millstream.metadata.client_quotas import ClientQuotasDelta
from millstream.metadata.cluster_delta import ClusterDelta
from millstream.metadata.configs import ConfigResource, ConfigurationsDelta, ResourceType
from millstream.metadata.delegation_tokens import DelegationTokensDelta
from millstream.metadata.features_image import FeaturesDelta
from millstream.metadata.image import MetadataImage, MetadataProvenance
from millstream.metadata.producer_ids import ProducerIdsDelta
from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.scram import ScramDelta
from millstream.metadata.topics_delta import TopicsDelta
from millstream.protocol.messages import broker_records as broker
from millstream.protocol.messages import config_records as config
from millstream.protocol.messages import log_records as log
from millstream.protocol.messages import security_records as security
from millstream.protocol.messages import topic_records as topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from millstream.protocol.message import Message

_ZK_MIGRATION_UNDER_WAY: Final = frozenset({1, 2})
"""Pre-migration and migration: states in which ZooKeeper still had a say."""


class MetadataDelta:
    """Changes since an image; the part for a kind is made when its first record comes."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    @cached_property
    def features(self) -> FeaturesDelta:
        """Changed feature levels."""
        return FeaturesDelta(self.image.features)

    @cached_property
    def cluster(self) -> ClusterDelta:
        """Changed brokers and controllers."""
        return ClusterDelta(self.image.cluster)

    @cached_property
    def topics(self) -> TopicsDelta:
        """Changed topics and partitions."""
        return TopicsDelta(self.image.topics)

    @cached_property
    def configs(self) -> ConfigurationsDelta:
        """Changed settings."""
        return ConfigurationsDelta(self.image.configs)

    @cached_property
    def client_quotas(self) -> ClientQuotasDelta:
        """Changed quotas."""
        return ClientQuotasDelta(self.image.client_quotas)

    @cached_property
    def producer_ids(self) -> ProducerIdsDelta:
        """The changed next producer id."""
        return ProducerIdsDelta(self.image.producer_ids)

    @cached_property
    def acls(self) -> AclsDelta:
        """Changed access control entries."""
        return AclsDelta(self.image.acls)

    @cached_property
    def scram(self) -> ScramDelta:
        """Changed SCRAM credentials."""
        return ScramDelta(self.image.scram)

    @cached_property
    def delegation_tokens(self) -> DelegationTokensDelta:
        """Changed delegation tokens."""
        return DelegationTokensDelta(self.image.delegation_tokens)

    def touches(self, kind: str) -> bool:
        """Whether anything of a kind (`topics`, `configs` ...) was replayed."""
        return kind in self.__dict__

    @property
    def is_empty(self) -> bool:
        """Whether no record was replayed that changes anything."""
        return not any(self.touches(kind) for kind in KINDS)

    def replay(self, record: Message) -> None:
        """Take in one record. Transactions are the caller's business."""
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise UnreplayableRecord(f"{type(record).__name__} has no place in an image")
        replay(self, record)

    def replay_all(self, records: Iterable[Message]) -> None:
        """Take in records in order."""
        for record in records:
            self.replay(record)

    def finish_snapshot(self) -> None:
        """A snapshot has been replayed in full: what it does not mention is gone."""
        for kind in KINDS:
            getattr(self, kind).finish_snapshot()

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """The image after the records; parts without changes are the old ones."""
        image = self.image
        return MetadataImage(
            provenance,
            *(
                getattr(self, kind).apply() if self.touches(kind) else getattr(image, kind)
                for kind in KINDS
            ),
        )

    def _remove_topic(self, record: topic.RemoveTopicRecord) -> None:
        name = self.topics.replay_remove_topic(record)
        self.configs.forget(ConfigResource(ResourceType.TOPIC, name))

    def _zk_migration(self, record: log.ZkMigrationStateRecord) -> None:
        if record.zk_migration_state in _ZK_MIGRATION_UNDER_WAY:
            raise UnreplayableRecord(
                "this log is from a migration off ZooKeeper that was never finished: "
                "finish it with Kafka 3.9 first"
            )

    def _nothing(self, record: Message) -> None:
        """For records that only move the offset."""


KINDS: Final = (
    "features",
    "cluster",
    "topics",
    "configs",
    "client_quotas",
    "producer_ids",
    "acls",
    "scram",
    "delegation_tokens",
)
"""The parts of an image and of a delta, in the order in which snapshots have them."""

_REPLAY: Final[dict[type[Message], Callable[[MetadataDelta, Any], object]]] = {
    broker.RegisterBrokerRecord: lambda d, r: d.cluster.replay_register_broker(r),
    broker.UnregisterBrokerRecord: lambda d, r: d.cluster.replay_unregister_broker(r),
    broker.FenceBrokerRecord: lambda d, r: d.cluster.replay_fence_broker(r),
    broker.UnfenceBrokerRecord: lambda d, r: d.cluster.replay_unfence_broker(r),
    broker.BrokerRegistrationChangeRecord: lambda d, r: d.cluster.replay_broker_change(r),
    broker.RegisterControllerRecord: lambda d, r: d.cluster.replay_register_controller(r),
    broker.UnregisterControllerRecord: lambda d, r: d.cluster.replay_unregister_controller(r),
    topic.TopicRecord: lambda d, r: d.topics.replay_topic(r),
    topic.PartitionRecord: lambda d, r: d.topics.replay_partition(r),
    topic.PartitionChangeRecord: lambda d, r: d.topics.replay_partition_change(r),
    topic.RemoveTopicRecord: MetadataDelta._remove_topic,
    topic.ClearElrRecord: lambda d, r: d.topics.replay_clear_elr(r),
    config.ConfigRecord: lambda d, r: d.configs.replay_config(r),
    config.FeatureLevelRecord: lambda d, r: d.features.replay_level(r),
    config.ClientQuotaRecord: lambda d, r: d.client_quotas.replay_quota(r),
    config.ProducerIdsRecord: lambda d, r: d.producer_ids.replay_producer_ids(r),
    security.AccessControlEntryRecord: lambda d, r: d.acls.replay_entry(r),
    security.RemoveAccessControlEntryRecord: lambda d, r: d.acls.replay_remove_entry(r),
    security.UserScramCredentialRecord: lambda d, r: d.scram.replay_credential(r),
    security.RemoveUserScramCredentialRecord: lambda d, r: d.scram.replay_remove_credential(r),
    security.DelegationTokenRecord: lambda d, r: d.delegation_tokens.replay_token(r),
    security.RemoveDelegationTokenRecord: lambda d, r: d.delegation_tokens.replay_remove_token(r),
    log.NoOpRecord: MetadataDelta._nothing,
    log.ZkMigrationStateRecord: MetadataDelta._zk_migration,
}
