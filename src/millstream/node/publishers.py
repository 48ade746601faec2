"""What the metadata means for a broker: the publishers that make an image true on this node.

Installed in order: the cache first, so that everybody answers from the new image; settings and
replicas next; the lifecycle last, because a broker may say that it has applied the metadata only
when it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.metadata.configs import CLUSTER_DEFAULT, ConfigResource, ResourceType
from millstream.metadata.publisher import ManifestKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest
    from millstream.metadata.topics_delta import LocalPartition
    from millstream.node.dynamic_config import DynamicConfig
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.storage.log.config import LogConfig
    from millstream.storage.manager.log_manager import LogManager
    from millstream.types import TopicPartition, Uuid


class CachePublisher:
    """Gives the cache its image."""

    name = "metadata cache"

    def __init__(self, cache: KRaftMetadataCache) -> None:
        self._cache = cache

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """The image is what everybody asks from now on."""
        self._cache.image = image

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """The image does not say who leads the quorum."""

    def close(self) -> None:
        """Nothing to release."""


class ConfigPublisher:
    """Brings changed settings to those who live by them."""

    name = "dynamic configuration"

    def __init__(
        self,
        broker_id: int,
        config: DynamicConfig,
        *,
        on_topic: Callable[[str, LogConfig], None],
        on_broker: Callable[[], None],
    ) -> None:
        self._own = ConfigResource(ResourceType.BROKER, str(broker_id))
        self._config = config
        self._on_topic = on_topic
        self._on_broker = on_broker

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Take what changed."""
        if manifest.kind is ManifestKind.SNAPSHOT:
            self._config.load(image.configs)
            self._on_broker()
            self._tell_topics(image)
            return
        if not delta.touches("configs"):
            return
        changed = delta.configs.changes
        if (CLUSTER_DEFAULT in changed or self._own in changed) and self._config.update_broker(
            image.configs
        ):
            self._on_broker()
            self._tell_topics(image)
        for resource in changed:
            if resource.type == ResourceType.TOPIC:
                config = self._config.update_topic(resource.name, image.configs)
                self._on_topic(resource.name, config)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Settings do not depend on it."""

    def close(self) -> None:
        """Nothing to release."""

    def _tell_topics(self, image: MetadataImage) -> None:
        for topic in image.topics.by_name:
            self._on_topic(topic, self._config.for_topic(topic))


class ReplicaPublisher:
    """Lets the replica manager lead, follow, create and delete."""

    name = "replicas"

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        logs: LogManager,
        on_placed: Callable[[Uuid, int, Uuid], None],
    ) -> None:
        """`on_placed` hears (topic id, partition, directory) where the cluster does not know it."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._logs = logs
        self._on_placed = on_placed

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Apply what changed."""
        if delta.touches("topics") or manifest.kind is ManifestKind.SNAPSHOT:
            self._replicas.apply(delta.topics, image.topics)
            self._report_directories(delta)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Replicas do not depend on who leads the metadata quorum."""

    def close(self) -> None:
        """Nothing to release."""

    def _report_directories(self, delta: MetadataDelta) -> None:
        changes = delta.topics.local_changes(self._broker_id)
        for partition, local in {**changes.leaders, **changes.followers}.items():
            self.report_directory(partition, local)

    def report_directory(self, partition: TopicPartition, local: LocalPartition) -> None:
        """Tell the cluster where a replica is, if it does not know."""
        try:
            actual = self._logs.directory_of(partition).directory_id
        except ApiError:
            return  # It is offline, and the replica manager has said so.
        known = local.registration.directory_of(self._broker_id)
        if actual is not None and known != actual:
            self._on_placed(local.topic_id, partition.partition, actual)


class ProgressPublisher:
    """Says how far the metadata is applied; the last in the row."""

    name = "broker lifecycle"

    def __init__(
        self,
        on_applied: Callable[[int], None],
        on_controller: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_applied = on_applied
        self._on_controller = on_controller

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Everything up to the image's last offset is true here."""
        self._on_applied(image.provenance.last_offset)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """The channel finds the leader; the lifecycle must introduce itself."""
        self._on_controller()

    def close(self) -> None:
        """Nothing to release."""
