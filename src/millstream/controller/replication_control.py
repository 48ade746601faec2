"""Partitions and brokers: who may lead what, and what a broker's coming and going does to both.

The other modules about partitions (topics, ISR, elections, reassignments, directories) build on
`ReplicationControl`. Like all controls it only decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.partition_change import (
    Election,
    PartitionChangeBuilder,
    PartitionRules,
)
from millstream.errors import StaleBrokerEpoch
from millstream.metadata.cluster_delta import FENCE, UNFENCE
from millstream.metadata.configs import CLUSTER_DEFAULT, ResourceType
from millstream.protocol.messages.broker_records import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.controller.partition_index import PartitionIndex, TopicIdPartition
    from millstream.metadata.cluster import BrokerRegistration
    from millstream.metadata.configs import ConfigurationsImage
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.topics import PartitionRegistration, TopicImage
    from millstream.protocol.message import Message
    from millstream.storage.log.config import LogConfig
    from millstream.types import Uuid


class ControllerState:
    """What decisions are made on. `QuorumController` keeps it current."""

    def __init__(
        self, image: MetadataImage, index: PartitionIndex, topic_defaults: LogConfig, random: Random
    ) -> None:
        self.image = image
        self.index = index
        self.topic_defaults = topic_defaults
        """A topic's settings as the configuration files have them."""
        self.random = random
        self.registered_at: dict[int, tuple[int, int]] = {}
        """By broker: its epoch, and the offset of the record that registered it."""
        self._remembered_for: ConfigurationsImage | None = None
        self._remembered: dict[str, tuple[int, bool]] = {}

    def min_isr(self, topic: str) -> int:
        """How many replicas must be in sync for a write to be accepted."""
        return self._replication_settings(topic)[0]

    def allows_unclean_election(self, topic: str) -> bool:
        """Whether a replica that is not in sync may lead rather than none."""
        return self._replication_settings(topic)[1]

    def _replication_settings(self, topic: str) -> tuple[int, bool]:
        # A broker's failure asks this for each of its partitions: remembered until settings change.
        configs = self.image.configs
        if configs is not self._remembered_for:
            self._remembered_for = configs
            self._remembered = {}
        found = self._remembered.get(topic)
        if found is None:
            found = self._remembered[topic] = self._read_replication_settings(topic)
        return found

    def _read_replication_settings(self, topic: str) -> tuple[int, bool]:
        """The topic's own setting, else the dynamic default of all brokers, else the files'."""
        configs = self.image.configs
        texts = {**configs.of(*CLUSTER_DEFAULT), **configs.of(ResourceType.TOPIC, topic)}
        min_isr = texts.get("min.insync.replicas")
        unclean = texts.get("unclean.leader.election.enable")
        defaults = self.topic_defaults
        return (
            defaults.min_insync_replicas if min_isr is None else int(min_isr),
            defaults.unclean_leader_election_enable
            if unclean is None
            else unclean.strip().lower() == "true",
        )

    def registered_broker(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The broker that asks, if it is the one that registered; else StaleBrokerEpoch."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            raise StaleBrokerEpoch(f"broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise StaleBrokerEpoch(
                f"broker {broker_id} asks with epoch {broker_epoch}, registered is {broker.epoch}"
            )
        return broker


class ReplicationControl:
    """What happens to partitions when brokers change."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def builder(
        self,
        topic: TopicImage,
        partition_id: int,
        *,
        is_active: Callable[[int], bool] | None = None,
        can_be_unclean: bool = True,
    ) -> PartitionChangeBuilder:
        """A builder for a partition, with the rules of its topic.

        `is_active` says which brokers may lead, where that is other than the image has it.
        """
        partition = topic.partitions[partition_id]
        state, image = self._state, self._state.image
        builder = PartitionChangeBuilder(
            topic.id,
            partition_id,
            partition,
            PartitionRules(
                self._leader_test(partition, is_active or image.cluster.is_active),
                image.cluster.default_directory,
                image.metadata_version,
                state.min_isr(topic.name),
                image.features.has_eligible_leader_replicas,
            ),
        )
        if can_be_unclean and state.allows_unclean_election(topic.name):
            builder.election = Election.UNCLEAN
        return builder

    def broker_fenced(self, broker: BrokerRegistration) -> list[Message]:
        """A broker is out: it leaves every ISR, its leaderships move."""
        changes = self._updates(self._state.index.in_isr(broker.id), without=broker.id)
        fenced = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE
        )
        return [*changes, fenced]

    def broker_unfenced(self, broker: BrokerRegistration) -> list[Message]:
        """A broker is in: partitions without leader may have it as one."""
        unfenced = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE
        )
        leaderless = sorted(
            (topic_id, partition_id)
            for topic_id, partition_id in self._state.index.leaderless
            if broker.id in self._partition(topic_id, partition_id).replicas
        )
        return [unfenced, *self._updates(leaderless, added=broker.id)]

    def broker_shutting_down(self, broker: BrokerRegistration) -> list[Message]:
        """A broker wants to stop: it leaves every ISR while it still serves."""
        going = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        return [going, *self._updates(self._state.index.in_isr(broker.id), without=broker.id)]

    def broker_unregistered(self, broker: BrokerRegistration) -> list[Message]:
        """A broker will not come back."""
        changes = self._updates(self._state.index.in_isr(broker.id), without=broker.id)
        gone = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        return [*changes, gone]

    def broker_restarted(self, broker_id: int, *, was_clean: bool) -> list[Message]:
        """A broker comes back as another incarnation.

        After an unclean stop it may have lost records, so it is no eligible leader any more.
        """
        index = self._state.index
        if was_clean or not self._state.image.features.has_eligible_leader_replicas:
            return self._updates(index.in_isr(broker_id), without=broker_id)
        return self._updates(
            index.in_isr_or_elr(broker_id), without=broker_id, unclean_shutdown=broker_id
        )

    def directories_lost(
        self, broker: BrokerRegistration, partitions: Iterable[TopicIdPartition]
    ) -> list[Message]:
        """Some of a broker's directories failed: it leaves the ISRs of the replicas there."""
        return self._updates(partitions, without=broker.id)

    def _updates(
        self,
        partitions: Iterable[TopicIdPartition],
        *,
        without: int | None = None,
        added: int | None = None,
        unclean_shutdown: int | None = None,
    ) -> list[Message]:
        """Leader and ISR of partitions after one broker went or came."""
        cluster = self._state.image.cluster

        def is_active(broker_id: int) -> bool:
            return broker_id != without and (broker_id == added or cluster.is_active(broker_id))

        records: list[Message] = []
        for topic_id, partition_id in partitions:
            topic = self._state.image.topics.by_id[topic_id]
            builder = self.builder(topic, partition_id, is_active=is_active)
            builder.isr = tuple(each for each in builder.isr if each != without)
            if unclean_shutdown is not None:
                builder.unclean_shutdown = frozenset({unclean_shutdown})
            record = builder.build()
            if record is not None:
                records.append(record)
        return records

    def _leader_test(
        self, partition: PartitionRegistration, is_active: Callable[[int], bool]
    ) -> Callable[[int], bool]:
        brokers = self._state.image.cluster.brokers

        def is_acceptable(broker_id: int) -> bool:
            if not is_active(broker_id):
                return False
            directory = partition.directory_of(broker_id)
            broker = brokers.get(broker_id)
            return directory is None or (broker is not None and broker.has_online(directory))

        return is_acceptable

    def _partition(self, topic_id: Uuid, partition_id: int) -> PartitionRegistration:
        return self._state.image.topics.by_id[topic_id].partitions[partition_id]
