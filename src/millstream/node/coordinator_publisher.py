"""Tells the coordinators which partitions of their topics this broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.metadata.publisher import ManifestKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.publisher import LeaderAndEpoch, LoaderManifest
    from millstream.metadata.topics_delta import LocalPartition
    from millstream.types import TopicPartition


class Elected(Protocol):
    """What a runtime is told about leadership."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition."""
        ...

    def resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker does not lead it any more."""
        ...


class CoordinatorPublisher:
    """Installed behind the replicas: a coordinator loads from logs that are led already."""

    name = "coordinators"

    def __init__(
        self,
        broker_id: int,
        runtimes: Mapping[str, Elected],
        on_image: Callable[[MetadataDelta, MetadataImage], None],
    ) -> None:
        """`runtimes` go by topic; `on_image` hears of everything, after the leaderships."""
        self._broker_id = broker_id
        self._runtimes = runtimes
        self._on_image = on_image

    def publish(self, delta: MetadataDelta, image: MetadataImage, manifest: LoaderManifest) -> None:
        """Apply what changed."""
        if delta.touches("topics") or manifest.kind is ManifestKind.SNAPSHOT:
            self._apply_leaderships(delta)
        self._on_image(delta, image)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Coordinators do not depend on who leads the metadata quorum."""

    def close(self) -> None:
        """Nothing to release."""

    def _apply_leaderships(self, delta: MetadataDelta) -> None:
        changes = delta.topics.local_changes(self._broker_id)
        for name in changes.deleted:
            if name.topic in self._runtimes:
                self._runtimes[name.topic].resigned(name.partition)
        for name, local in changes.followers.items():
            if name.topic in self._runtimes:
                epoch = local.registration.leader_epoch
                self._runtimes[name.topic].resigned(name.partition, epoch)
        for name, local in changes.leaders.items():
            self.elect(name, local)

    def elect(self, name: TopicPartition, local: LocalPartition) -> None:
        """This broker leads a partition, and has its log."""
        if name.topic in self._runtimes:
            self._runtimes[name.topic].elected(name.partition, local.registration.leader_epoch)
