"""Clusters of Millstream and Apache Kafka nodes as processes, with one file of settings for both.

A test says which node is whose and which roles it has; `MixedCluster` formats, starts, kills and
asks them. Election times differ between nodes where a test wants a certain one to be elected.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from millstream import Admin
from millstream.client.admin.topics import NewTopic
from millstream.errors import MillstreamError
from millstream.types import Uuid
from tests.interop.kafka_broker import KafkaProcess, free_ports
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from millstream.client.admin.cluster import QuorumDescription

PATIENCE_SECONDS = 120
_LOOK_SECONDS = 0.1
_HEAP = "256m"
_SETTINGS: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.backoff.max.ms": "300",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
}

Maker = Literal["millstream", "kafka"]


@dataclass(frozen=True, slots=True)
class Spec:
    """One node: whose software it runs, what it does, what is particular about it."""

    maker: Maker
    roles: str = "broker,controller"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_broker(self) -> bool:
        """Whether clients connect to it."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it may be a voter."""
        return "controller" in self.roles


class MixedNode(KafkaProcess):
    """One node, of either software."""

    def __init__(self, jars: Path, scratch: Path, node_id: int, spec: Spec) -> None:
        scratch.mkdir()
        super().__init__(jars, scratch, _HEAP)
        self.node_id = node_id
        self.spec = spec
        self.data = scratch / "data"
        self.port, self.controller_port = free_ports(2)

    @property
    def address(self) -> str:
        """For clients; of a controller alone, for its tools."""
        return f"localhost:{self.port}" if self.spec.is_broker else self.controller_address

    @property
    def controller_address(self) -> str:
        """For the other nodes."""
        return f"localhost:{self.controller_port}"

    @property
    def metadata_log(self) -> bytes:
        """The segments of its metadata log, one after the other."""
        files = sorted((self.data / "__cluster_metadata-0").glob("*.log"))
        return b"".join(each.read_bytes() for each in files)

    @property
    def snapshots(self) -> list[Path]:
        """The snapshots that it has, the oldest first."""
        return sorted((self.data / "__cluster_metadata-0").glob("*.checkpoint"))

    def write_settings(self, quorum: Mapping[str, str]) -> None:
        """Its server.properties."""
        listeners = []
        if self.spec.is_broker:
            listeners.append(f"PLAINTEXT://localhost:{self.port}")
        if self.spec.is_controller:
            listeners.append(f"CONTROLLER://{self.controller_address}")
        settings = {
            **_SETTINGS,
            "process.roles": self.spec.roles,
            "node.id": str(self.node_id),
            "listeners": ",".join(listeners),
            "log.dirs": str(self.data),
            **quorum,
            **self.spec.settings,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self.settings_path.write_text("".join(lines))

    def _storage_tool(self) -> list[str]:
        if self.spec.maker == "kafka":
            return super()._storage_tool()
        return [sys.executable, "-m", "millstream", "storage"]

    def _server(self) -> list[str]:
        if self.spec.maker == "kafka":
            return super()._server()
        return [
            *(sys.executable, "-m", "millstream", "server", "start"),
            *("--config", str(self.settings_path)),
        ]


class MixedCluster:
    """Some nodes, by id. `start` makes them one cluster; `close` ends them."""

    def __init__(
        self,
        jars: Path,
        scratch: Path,
        specs: Mapping[int, Spec],
        *,
        is_dynamic: bool = False,
        make_node: type[MixedNode] = MixedNode,
    ) -> None:
        """A dynamic quorum has its voters in the metadata, a static one in the settings."""
        self.nodes = {
            node_id: make_node(jars, scratch / str(node_id), node_id, spec)
            for node_id, spec in specs.items()
        }
        controllers = [each for each in self.nodes.values() if each.spec.is_controller]
        if is_dynamic:
            key, listed = "bootstrap.servers", [each.controller_address for each in controllers]
        else:
            key = "voters"
            listed = [f"{each.node_id}@{each.controller_address}" for each in controllers]
        for each in self.nodes.values():
            each.write_settings({f"controller.quorum.{key}": ",".join(listed)})

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.address for each in self.nodes.values() if each.spec.is_broker)

    def start(self, *node_ids: int, options: Mapping[int, Sequence[str]] | None = None) -> None:
        """Format and launch nodes, all if none are named; return when their brokers are members.

        `options` are arguments of the storage tool for some of them.
        """
        chosen = [self.nodes[each] for each in node_ids or self.nodes]
        for each in chosen:
            each.format(*(options or {}).get(each.node_id, ()))
        for each in chosen:
            each.launch()
        self.until(lambda: self.members >= {each.node_id for each in chosen if each.spec.is_broker})

    def close(self) -> None:
        """End all of them; nothing is kept."""
        for each in self.nodes.values():
            each.kill()

    def initial_controllers(self) -> dict[int, tuple[str, ...]]:
        """Arguments of the storage tool that make all controllers the first voters."""
        voters = [each for each in self.nodes.values() if each.spec.is_controller]
        listed = [
            f"{each.node_id}@{each.controller_address}:{Uuid(bytes([each.node_id] * 16))}"
            for each in voters
        ]
        return {each.node_id: ("--initial-controllers", ",".join(listed)) for each in voters}

    # What the cluster says.

    @property
    def members(self) -> set[int]:
        """The brokers that are registered and not fenced."""
        with Admin(self.bootstrap, default_api_timeout=10.0) as admin:
            return {each.node_id for each in admin.describe_cluster().brokers}

    @property
    def quorum(self) -> QuorumDescription:
        """What the leader of the quorum says about it."""
        with Admin(self.bootstrap, default_api_timeout=10.0) as admin:
            return admin.describe_quorum()

    @property
    def racks(self) -> dict[int, str | None]:
        """Where the brokers stand."""
        with Admin(self.bootstrap, default_api_timeout=10.0) as admin:
            return {each.node_id: each.rack for each in admin.describe_cluster().brokers}

    def topics(self, node_id: int) -> set[str]:
        """The topics that a broker knows."""
        with Admin(self.nodes[node_id].address, default_api_timeout=10.0) as admin:
            return {each.name for each in admin.list_topics()}

    def leader(self) -> MixedNode:
        """Who leads the quorum, as soon as somebody does."""
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [self.quorum.leader_id]
            return found[0] >= 0

        self.until(is_led)
        return self.nodes[found[0]]

    def create(self, *names: str, at: int | None = None) -> None:
        """Create topics through all brokers or a certain one."""
        address = self.bootstrap if at is None else self.nodes[at].address
        with Admin(address) as admin:
            admin.create_topics(
                [NewTopic(name, 1, replication_factor=1) for name in names]
            ).raise_first()

    def until_all_know(self, *topics: str) -> None:
        """Wait until every running broker has these topics."""
        running = [n for n, each in self.nodes.items() if each.is_running and each.spec.is_broker]
        self.until(lambda: all(self.topics(each) >= set(topics) for each in running))

    def until_members(self, node_ids: set[int]) -> None:
        """Wait until just these brokers are members."""
        self.until(lambda: self.members == node_ids)

    def until_level(self) -> None:
        """Wait until every running node has all that is committed."""
        running = {each.node_id for each in self.nodes.values() if each.is_running}

        def is_level() -> bool:
            quorum = self.quorum
            ends = {each.node_id: each.log_end_offset for each in quorum.voters + quorum.observers}
            return all(ends.get(each, -1) >= quorum.high_watermark for each in running)

        self.until(is_level)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something; what nodes do not answer meanwhile does not count."""

        def holds_by_now() -> bool:
            with suppress(MillstreamError):
                return holds()
            return False

        def tell() -> str:
            logs = (f"--- {n}\n{each.log[-3000:]}" for n, each in self.nodes.items())
            return "it did not come to that\n" + "\n".join(logs)

        until(holds_by_now, tell, limit_seconds=PATIENCE_SECONDS, look_seconds=_LOOK_SECONDS)
