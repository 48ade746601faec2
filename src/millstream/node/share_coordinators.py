"""Everything about share groups on one broker, from the log of their state to its facades.

`BrokerCoordinators` makes one, leads it to the topic of the states and gives it the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
from millstream.coordinator.group.share.offsets import ShareGroupOffsets
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.share.coordinator import ShareCoordinator
from millstream.coordinator.share.state_shard import ShareStateShard
from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.node.share_states import BrokerPartitionEnds, BrokerShareStates, BrokerStateLog
from millstream.protocol.records_framing import SHARE_RECORDS
from millstream.server.internal_topics import InternalTopic
from millstream.server.share_acknowledging import ShareAcknowledging
from millstream.server.share_apis import ShareServices
from millstream.server.share_fetch_service import ShareFetchService
from millstream.server.share_partitions import SharePartitionManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from millstream.coordinator.group.shard import GroupShard
    from millstream.coordinator.group.share.config import ShareGroupSettings
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.peer_calls import PeerContext
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.internal_topics import InternalTopics
    from millstream.types import Uuid


_SETTINGS_MAX: Final = 1_000
"""How many groups' settings are remembered."""


class ShareConfigs(NamedTuple):
    """The settings of share groups."""

    groups: ShareGroupConfig = ShareGroupConfig()
    states: ShareCoordinatorConfig = ShareCoordinatorConfig()


class ShareSettings:
    """What holds for each share group: the broker's settings and the group's own."""

    def __init__(self, config: ShareGroupConfig, metadata: KRaftMetadataCache) -> None:
        self._config = config
        self._metadata = metadata
        self._known: dict[str, tuple[Mapping[str, str], ShareGroupSettings]] = {}

    def __call__(self, group_id: str) -> ShareGroupSettings:
        """The settings now; made anew only when the group's own have changed."""
        dynamic = self._metadata.group_config(group_id)
        known = self._known.get(group_id)
        if known is None or known[0] is not dynamic:
            if len(self._known) >= _SETTINGS_MAX:
                self._known.clear()
            known = self._known[group_id] = (dynamic, self._config.settings(dynamic))
        return known[1]


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
        settings: ShareSettings,
        context: PeerContext,
    ) -> None:
        """`make_runtime` is that of the other coordinators.

        `settings` gives what holds for a group.
        """
        clock, arm = context.clock, context.arm
        log = BrokerStateLog(replicas)
        self.runtime = make_runtime(
            SHARE_STATE_TOPIC,
            SHARE_RECORDS,
            lambda partition, _: ShareStateShard(partition, configs.states, metadata, log),
            configs.states.write_timeout_ms,
        )
        """To be told which partitions of the topic of the states this broker leads."""
        coordinator = ShareCoordinator(self.runtime)
        self._states = states = BrokerShareStates(coordinator, topics, metadata, context)
        self._ends = BrokerPartitionEnds(replicas, metadata, context)
        groups = ShareGroupCoordinator(group_runtime, states, metadata)
        offsets = ShareGroupOffsets(group_runtime, groups, states, metadata, self._ends)
        self.partitions = SharePartitionManager(
            replicas,
            states,
            settings,
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

    def topics_deleted(self, topics: Mapping[str, Uuid]) -> None:
        """Topics, by name with their ids, are gone: so is what groups had of them."""
        self.partitions.topics_deleted(topics.values())
        self.services.groups.topics_deleted(topics)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        parts = (self.runtime, self.partitions, self._states, self._ends)
        deadlines = [each.next_deadline_ms() for each in parts]
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Decide what is due, and let locks end."""
        self.runtime.tick()
        self.partitions.tick()
        self._states.tick()
        self._ends.tick()

    def close(self) -> None:
        """Tell everybody who waits that another broker goes on."""
        self.runtime.close()

    def hang_up(self) -> None:
        """Ask other brokers nothing more."""
        self._states.close()
        self._ends.close()


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
