"""The coordinators of a broker, from their logs to their facades.

`BrokerServer` makes one, installs its publisher behind the replicas', and gives it the time. All of
it runs on the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.shard import GroupShard
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.shard import TransactionShard
from millstream.metadata.topic_names import (
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from millstream.node.coordinator_publisher import CoordinatorPublisher
from millstream.node.coordinator_store import CoordinatorStore
from millstream.node.marker_sender import BrokerMarkerSender
from millstream.node.peer_calls import PeerContext
from millstream.node.share_coordinators import (
    BrokerShares,
    ShareConfigs,
    ShareSettings,
    share_state_topic,
)
from millstream.node.transaction_verifier import BrokerOffsetsVerifier, BrokerTransactionVerifier
from millstream.protocol.records_framing import GROUP_RECORDS, TRANSACTION_RECORDS
from millstream.server.coordinators import Coordinators
from millstream.server.internal_topics import InternalTopic, InternalTopics
from millstream.server.producer_ids import ProducerIdManager
from millstream.server.txn_markers import MarkerWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random
    from typing import Any

    from millstream.clock import Clock
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.transaction.config import TransactionConfig
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.metadata.delta import MetadataDelta
    from millstream.metadata.image import MetadataImage
    from millstream.network.server.request import Connection
    from millstream.node.config import NodeConfig
    from millstream.node.peer_calls import Peers
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.ports import ControllerChannel


class CoordinatorConfigs(NamedTuple):
    """The settings of all coordinators."""

    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    transactions: TransactionConfig
    shares: ShareConfigs = ShareConfigs()


def coordinator_configs(config: NodeConfig) -> CoordinatorConfigs:
    """What a node's settings say about coordinators."""
    shares = ShareConfigs(config.share_groups, config.share_states)
    return CoordinatorConfigs(config.groups, config.consumer_groups, config.transactions, shares)


class BrokerCoordinators:
    """Everything that coordinates on one broker."""

    def __init__(
        self,
        node_id: int,
        configs: CoordinatorConfigs,
        *,
        given: Mapping[str, str],
        replicas: ReplicaManager,
        metadata: KRaftMetadataCache,
        controller: ControllerChannel,
        make_peers: Callable[[], Peers],
        broker_epoch: Callable[[], int],
        clock: Clock,
        random: Random,
        defer: Callable[[Callable[[], None]], object],
        call_later: Callable[[int, Callable[[], None]], object],
        arm: Callable[[int], object],
    ) -> None:
        """`given` is what the user said, by Kafka's key. Leaders ask these coordinators at once.

        `make_peers` gives a way to other brokers for one purpose.
        """
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._defer = defer
        self._arm = arm
        self._peers = PeerContext(node_id, make_peers, clock, random, arm)
        self._replicas = replicas
        self._share_settings = ShareSettings(configs.shares.groups, metadata)
        self._group_runtime = self._make_group_runtime(configs, random)
        markers = MarkerWriter(replicas, self._group_runtime, clock)
        self._marker_sender = BrokerMarkerSender(
            metadata, markers, self._peers, lambda ended: transactions.markers_written(ended)
        )
        self._transaction_runtime = self._runtime(
            TRANSACTION_STATE_TOPIC,
            TRANSACTION_RECORDS,
            lambda partition, epoch: TransactionShard(
                partition, epoch, configs.transactions, self._marker_sender
            ),
            configs.groups.offsets_commit_timeout_ms,
        )
        producer_ids = ProducerIdManager(node_id, broker_epoch, controller, clock)
        transactions = TransactionCoordinator(
            self._transaction_runtime, producer_ids, configs.transactions
        )
        self._verifier = verifier = BrokerTransactionVerifier(
            transactions, metadata, self._peers, call_later
        )
        replicas.use_verifier(verifier)
        topics = InternalTopics(_internal_topics(configs, given), controller, metadata, clock)
        self._shares = self._make_shares(configs, topics)
        groups = GroupCoordinator(
            self._group_runtime,
            configs.groups,
            BrokerOffsetsVerifier(verifier, metadata),
            self._shares.services.groups.prepare_deletion,
        )
        self.facades = Coordinators(
            topics, groups, transactions, markers, producer_ids, self._shares.services
        )
        """What the request handlers use."""
        self.publisher = self._make_publisher()

    def _make_group_runtime(
        self, configs: CoordinatorConfigs, random: Random
    ) -> CoordinatorRuntime[GroupShard]:
        return self._runtime(
            GROUP_OFFSETS_TOPIC,
            GROUP_RECORDS,
            lambda _partition, _epoch: GroupShard(
                configs.groups,
                configs.consumer_groups,
                self._metadata,
                random,
                self._share_settings,
            ),
            configs.groups.offsets_commit_timeout_ms,
        )

    def _make_shares(self, configs: CoordinatorConfigs, topics: InternalTopics) -> BrokerShares:
        return BrokerShares(
            configs.shares,
            group_runtime=self._group_runtime,
            make_runtime=self._runtime,
            topics=topics,
            replicas=self._replicas,
            metadata=self._metadata,
            settings=self._share_settings,
            context=self._peers,
        )

    def _make_publisher(self) -> CoordinatorPublisher:
        runtimes = {
            GROUP_OFFSETS_TOPIC: self._group_runtime,
            TRANSACTION_STATE_TOPIC: self._transaction_runtime,
            SHARE_STATE_TOPIC: self._shares.runtime,
        }
        return CoordinatorPublisher(self._node_id, runtimes, self._note_image)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        deadlines = (
            self._group_runtime.next_deadline_ms(),
            self._transaction_runtime.next_deadline_ms(),
            self._marker_sender.next_deadline_ms(),
            self._shares.next_deadline_ms(),
        )
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Decide and send what is due."""
        self._group_runtime.tick()
        self._transaction_runtime.tick()
        self._marker_sender.tick()
        self._shares.tick()

    def connection_closed(self, connection: Connection) -> None:
        """A client is gone: what its members of share groups had is for others."""
        self._shares.partitions.connection_closed(connection)

    def close(self) -> None:
        """Tell everybody who waits that another broker will coordinate."""
        self.hang_up()
        self._group_runtime.close()
        self._transaction_runtime.close()
        self._shares.close()

    def hang_up(self) -> None:
        """Ask other brokers nothing more."""
        self._marker_sender.close()
        self._verifier.close()
        self._shares.hang_up()

    def _runtime(
        self,
        topic: str,
        codec: Any,
        make_shard: Callable[[int, int], Any],
        write_timeout_ms: int,
    ) -> CoordinatorRuntime[Any]:
        return CoordinatorRuntime(
            topic,
            codec=codec,
            make_shard=make_shard,
            store=CoordinatorStore(topic, self._replicas),
            partition_count=lambda: self._metadata.partition_count(topic),
            clock=self._clock,
            defer=self._defer,
            arm=self._arm,
            write_timeout_ms=write_timeout_ms,
        )

    def _note_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.touches("topics") and delta.topics.deleted:
            deleted = {topic.name: topic.id for topic in delta.topics.deleted.values()}
            self.facades.groups.topics_deleted(deleted)
            self._shares.topics_deleted(deleted)
        self.facades.topics.note_image()


def _internal_topics(
    configs: CoordinatorConfigs, given: Mapping[str, str]
) -> dict[str, InternalTopic]:
    groups, transactions = configs.groups, configs.transactions
    return {
        GROUP_OFFSETS_TOPIC: InternalTopic(
            GROUP_OFFSETS_TOPIC,
            groups.offsets_topic_num_partitions,
            groups.offsets_topic_replication_factor,
            "offsets.topic.replication.factor" in given,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(groups.offsets_topic_segment_bytes),
            },
        ),
        TRANSACTION_STATE_TOPIC: InternalTopic(
            TRANSACTION_STATE_TOPIC,
            transactions.partition_count,
            transactions.replication_factor,
            "transaction.state.log.replication.factor" in given,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(transactions.min_isr),
                "segment.bytes": str(transactions.segment_bytes),
            },
        ),
        SHARE_STATE_TOPIC: share_state_topic(configs.shares.states, given),
    }
