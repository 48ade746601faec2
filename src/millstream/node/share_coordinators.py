"""Everything about share groups on one broker, from the log of their state to its facades.

`BrokerCoordinators` makes one, leads it to the topic of the states and gives it the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
from millstream.coordinator.group.share.offsets import ShareGroupOffsets
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.share.coordinator import ShareCoordinator
from millstream.coordinator.share.state_shard import ShareStateShard
from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.node.share_states import LocalPartitionEnds, LocalShareStates, LocalStateLog
from millstream.protocol.records_framing import SHARE_RECORDS
from millstream.server.internal_topics import InternalTopic
from millstream.server.share_acknowledging import ShareAcknowledging
from millstream.server.share_apis import ShareServices
from millstream.server.share_fetch_service import ShareFetchService
from millstream.server.share_partitions import SharePartitionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from millstream.clock import Clock
    from millstream.coordinator.group.shard import GroupShard
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.internal_topics import InternalTopics


class ShareConfigs(NamedTuple):
    """The settings of share groups."""

    groups: ShareGroupConfig = ShareGroupConfig()
    states: ShareCoordinatorConfig = ShareCoordinatorConfig()


class BrokerShares:
    """The share groups of one broker."""

    def __init__(
        self,
        configs: ShareConfigs,
        *,
        group_runtime: CoordinatorRuntime[GroupShard],
        make_runtime: Callable[..., CoordinatorRuntime[Any]],
        topics: InternalTopics,
        replicas: ReplicaManager,
        metadata: KRaftMetadataCache,
        clock: Clock,
        arm: Callable[[int], object],
    ) -> None:
        """`make_runtime` is that of the other coordinators; `arm` asks for a `tick`."""
        log = LocalStateLog(replicas)
        self.runtime = make_runtime(
            SHARE_STATE_TOPIC,
            SHARE_RECORDS,
            lambda partition, _: ShareStateShard(partition, configs.states, metadata, log),
            configs.states.write_timeout_ms,
        )
        """To be told which partitions of the topic of the states this broker leads."""
        coordinator = ShareCoordinator(self.runtime)
        states = LocalShareStates(coordinator, topics)
        groups = ShareGroupCoordinator(group_runtime, states, metadata)
        offsets = ShareGroupOffsets(
            group_runtime, groups, states, metadata, LocalPartitionEnds(replicas)
        )
        self.partitions = SharePartitionManager(
            replicas,
            states,
            lambda group_id: configs.groups.settings(metadata.group_config(group_id)),
            clock,
            arm,
            sessions_max=configs.groups.max_sessions,
        )
        """To be told of connections that are gone."""
        self.services = ShareServices(
            groups,
            offsets,
            coordinator,
            ShareAcknowledging(self.partitions),
            ShareFetchService(self.partitions, replicas, clock),
        )
        """What the request handlers use."""

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        deadlines = (self.runtime.next_deadline_ms(), self.partitions.next_deadline_ms())
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Decide what is due, and let locks end."""
        self.runtime.tick()
        self.partitions.tick()

    def close(self) -> None:
        """Tell everybody who waits that another broker goes on."""
        self.runtime.close()


def share_state_topic(config: ShareCoordinatorConfig, given: Mapping[str, str]) -> InternalTopic:
    """How the topic of the states is made."""
    return InternalTopic(
        SHARE_STATE_TOPIC,
        config.partition_count,
        config.replication_factor,
        "share.coordinator.state.topic.replication.factor" in given,
        {
            # Not compacted: the coordinator deletes what it does not need any more.
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.min_isr),
            "segment.bytes": str(config.segment_bytes),
        },
    )
