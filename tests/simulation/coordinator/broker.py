"""A broker without sockets whose coordinators keep their state in logs that others replicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.metadata.topic_names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from millstream.node.coordinators import BrokerCoordinators, CoordinatorConfigs
from tests.simulation.coordinator.store import ReplicatedStore
from tests.unit.server.harness import NODE_ID, Broker, NoPeers
from tests.unit.server.requests import find_coordinator_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.coordinator.group.shard import GroupShard
    from tests.simulation.coordinator.schedule import Schedule

SESSION_MS = 10_000
PARTITIONS = 2
"""Of each internal topic."""
CONFIGS = CoordinatorConfigs(
    GroupConfig(
        offsets_topic_num_partitions=PARTITIONS,
        group_initial_rebalance_delay_ms=500,
        group_min_session_timeout_ms=1_000,
    ),
    ConsumerGroupConfig(
        session_timeout_ms=SESSION_MS,
        session_timeout_min_ms=1_000,
        heartbeat_interval_ms=1_000,
        heartbeat_interval_min_ms=1_000,
    ),
    TransactionConfig(partition_count=PARTITIONS),
)


class _Coordinators(BrokerCoordinators):
    """The real ones, with other logs under them."""

    def __init__(self, broker: SimBroker, **arguments: Any) -> None:
        self._broker = broker
        super().__init__(NODE_ID, CONFIGS, **arguments)

    def _runtime(
        self,
        topic: str,
        codec: Any,
        make_shard: Callable[[int, int], Any],
        write_timeout_ms: int,
    ) -> CoordinatorRuntime[Any]:
        runtime = CoordinatorRuntime(
            topic,
            codec=codec,
            make_shard=make_shard,
            store=self._broker.store_of(topic),
            partition_count=lambda: self._metadata.partition_count(topic),
            clock=self._clock,
            defer=self._defer,
            arm=self._arm,
            write_timeout_ms=write_timeout_ms,
        )
        self._broker.runtimes[topic] = runtime
        return runtime


class SimBroker(Broker):
    """Real handlers, replicas, data logs and coordinators; simulated time."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self.stores: dict[str, ReplicatedStore] = {}
        self.runtimes: dict[str, CoordinatorRuntime[Any]] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        super().__init__(clock=schedule.clock)
        self.create("input", 4)
        self.create("output", 2)
        self.ask(find_coordinator_request(4, 0))
        self.ask(find_coordinator_request(4, 1))
        for topic in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            for partition in range(PARTITIONS):
                self.fail_over(topic, partition)
        self.settle()

    def _make_coordinators(self, given: Mapping[str, str]) -> BrokerCoordinators:
        return _Coordinators(
            self,
            given=given,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=self.channel,
            make_peers=NoPeers,
            broker_epoch=lambda: self.controller.epoch_of(NODE_ID),
            clock=self.clock,
            random=self._random,
            defer=self.events.append,
            call_later=self._schedule.after,
            arm=lambda _: None,
        )

    def store_of(self, topic: str) -> ReplicatedStore:
        """The logs of an internal topic."""
        if topic not in self.stores:
            self.stores[topic] = ReplicatedStore(self._schedule, self._random)
        return self.stores[topic]

    def group_shards(self) -> list[GroupShard]:
        """What the group coordinator has loaded."""
        return list(self.runtimes[GROUP_OFFSETS_TOPIC].shards)

    def fail_over(self, topic: str, partition: int) -> None:
        """The leader of a partition fails and another one, which is this broker again, leads."""
        epoch = self._epochs.get((topic, partition), 100) + 1
        self._epochs[topic, partition] = epoch
        self.stores[topic].lead(partition, epoch)
        self.runtimes[topic].elected(partition, epoch)

    def fail_over_something(self) -> None:
        """The same of any partition."""
        topic = self._random.choice([GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
        self.fail_over(topic, self._random.randrange(PARTITIONS))

    def heal(self) -> None:
        """From now on followers are quick and appends work."""
        for store in self.stores.values():
            store.is_troubled = False
