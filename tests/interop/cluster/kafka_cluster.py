"""Three nodes of Apache Kafka, each broker and controller, in racks of their own.

Tests stop, kill and pause nodes through `KafkaCluster`, and ask it who leads what. Deaths are
noticed within seconds. `heal` makes the cluster whole again, whatever was done to it.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream import Admin, TopicPartition
from millstream.client.admin import NewTopic
from millstream.errors import MillstreamError
from tests.interop.kafka_broker import KafkaProcess, free_ports
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

NODE_IDS = (1, 2, 3)
PATIENCE_SECONDS = 150
_LOOK_SECONDS = 0.1
_HEAP = "320m"
_SETTINGS = """\
process.roles=broker,controller
node.id={node_id}
broker.rack={rack}
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
controller.quorum.voters={voters}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
share.coordinator.state.topic.num.partitions=3
auto.leader.rebalance.enable=false
broker.heartbeat.interval.ms=300
broker.session.timeout.ms=3000
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000
replica.lag.time.max.ms=3000
replica.fetch.wait.max.ms=100
controlled.shutdown.enable=true
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
group.share.min.heartbeat.interval.ms=500
group.share.heartbeat.interval.ms=500
quota.window.num=3
controller.quota.window.num=3
num.network.threads=2
num.io.threads=4
background.threads=2
"""

_numbers = itertools.count(1)


class KafkaNode(KafkaProcess):
    """One of the three."""

    def __init__(self, jars: Path, scratch: Path, node_id: int, ports: tuple[int, int]) -> None:
        scratch.mkdir()
        super().__init__(jars, scratch, _HEAP)
        self.node_id = node_id
        self.data = scratch / "data"
        self.port, self.controller_port = ports
        self.is_paused = False

    @property
    def rack(self) -> str:
        """Where it stands."""
        return f"rack-{self.node_id}"

    @property
    def address(self) -> str:
        """For clients."""
        return f"localhost:{self.port}"

    def write_settings(self, voters: str) -> None:
        """At the port that it has now."""
        self.settings_path.write_text(
            _SETTINGS.format(
                node_id=self.node_id,
                rack=self.rack,
                voters=voters,
                port=self.port,
                controller_port=self.controller_port,
                data=self.data,
            )
        )

    def pause(self) -> None:
        """Let it hang."""
        super().pause()
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        super().resume()
        self.is_paused = False


class KafkaCluster:
    """A quorum of three."""

    def __init__(self, jars: Path, scratch: Path) -> None:
        ports = free_ports(2 * len(NODE_IDS))
        self.nodes = {
            node_id: KafkaNode(jars, scratch / str(node_id), node_id, (ports.pop(), ports.pop()))
            for node_id in NODE_IDS
        }
        self._write_settings()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(each.address for each in self.nodes.values())

    def start(self) -> None:
        """Return when all three are members."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(KafkaNode.format, self.nodes.values()))
        self.heal()

    def close(self) -> None:
        """End all of them; nothing is kept."""
        for each in self.nodes.values():
            each.kill()

    def heal(self) -> None:
        """Have every node run and every replica in sync."""
        for each in self.nodes.values():
            if each.is_paused:
                each.resume()
            if not each.is_running:
                each.launch()
        self.until(self._is_whole, lambda: "every replica is in sync")

    def move(self, ports: Sequence[int]) -> None:
        """End all nodes, and start them at other ports."""
        for node, port in zip(self.nodes.values(), ports, strict=True):
            node.kill()
            node.port = port
        self._write_settings()
        self.heal()

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic on all nodes; replicas are dealt in turn, node 1 leads partition 0."""
        nodes = list(NODE_IDS)
        assignment = {
            index: [*nodes[index % 3 :], *nodes[: index % 3]] for index in range(partitions)
        }
        return self.topic_at(name, assignment, **config)

    def topic_at(self, name: str, assignment: Mapping[int, Sequence[int]], **config: str) -> str:
        """Create a topic with given replicas, the first of which is to lead."""
        name = f"{name}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        with Admin(self.bootstrap) as admin:
            admin.create_topics(
                [NewTopic(name, config=settings, assignment=assignment)]
            ).raise_first()
        self.until(lambda: self._is_led(name, assignment), lambda: f"{name} is led as wanted")
        return name

    def leader(self, topic: str, partition: int = 0) -> KafkaNode:
        """Who leads a partition."""
        with Admin(self.bootstrap) as admin:
            found = admin.describe_topics([topic])[topic].partitions[partition]
        assert found.leader is not None, f"{topic}-{partition} has no leader"
        return self.nodes[found.leader]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """The nodes that have all that is acknowledged."""
        with Admin(self.bootstrap) as admin:
            found = admin.describe_topics([topic])[topic].partitions[partition]
        return set(found.isr)

    def prefer(self, topic: str, partitions: int) -> None:
        """Have the first replica of each partition lead."""
        with Admin(self.bootstrap) as admin:
            admin.elect_leaders([TopicPartition(topic, each) for each in range(partitions)])

    def until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait for something; what brokers do not answer meanwhile does not count."""

        def is_so_by_now() -> bool:
            with suppress(MillstreamError):
                return is_so()
            return False

        def tell() -> str:
            logs = "\n".join(each.log[-1500:] for each in self.nodes.values())
            return f"it did not come to this: {what()}\n{logs}"

        until(is_so_by_now, tell, limit_seconds=PATIENCE_SECONDS, look_seconds=_LOOK_SECONDS)

    def _write_settings(self) -> None:
        voters = ",".join(
            f"{each.node_id}@localhost:{each.controller_port}" for each in self.nodes.values()
        )
        for each in self.nodes.values():
            each.write_settings(voters)

    def _is_led(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> bool:
        with Admin(self.bootstrap) as admin:
            found = admin.describe_topics([topic])[topic].partitions
        return all(each.leader == assignment[each.index][0] for each in found)

    def _is_whole(self) -> bool:
        with Admin(self.bootstrap, default_api_timeout=10.0) as admin:
            if len(admin.describe_cluster().brokers) < len(self.nodes):
                return False
            names = [each.name for each in admin.list_topics(include_internal=True)]
            described = [admin.describe_topics(names)[each] for each in names]
        return all(
            each.leader is not None and len(each.isr) == len(each.replicas)
            for topic in described
            for each in topic.partitions
        )
