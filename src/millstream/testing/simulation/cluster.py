"""Several nodes of one cluster in a simulated world, formatted and ready to be started.

`SimCluster(seed)` is to a simulation what `EmbeddedCluster` is to a test with threads and sockets:
the nodes are real, their surroundings are not, and an hour takes seconds.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidArgument
from millstream.node.config import node_config
from millstream.node.formatting import format_storage
from millstream.raft.voters import (
    LOCAL_SUPPORTED_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.testing.admin_requests import as_text
from millstream.testing.simulation.clock import EPOCH_MS
from millstream.testing.simulation.world import World
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.node.config import NodeConfig
    from millstream.node.node import Node
    from millstream.testing.simulation.machine import SimMachine

_LISTENER: Final = "CONTROLLER"
CONTROLLER_PORT: Final = 9093
BROKER_PORT: Final = 9092
START_MAX_MS: Final = 120_000


class SimCluster:
    """Nodes 1 to `nodes` are brokers and controllers.

    With `controllers` they are brokers only, and as many controllers have the ids after them. Of
    those who can be controllers, `joiners` are not voters in the beginning.
    """

    def __init__(
        self,
        seed: int = 0,
        nodes: int = 3,
        *,
        controllers: int = 0,
        joiners: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Starts nothing yet. `settings` are by Kafka's keys and for all nodes."""
        if nodes < 1 or controllers < 0 or joiners < 0:
            raise InvalidArgument(f"a cluster of {nodes} nodes and {controllers} controllers")
        self.world = World(seed)
        self._settings = {key: as_text(value) for key, value in (settings or {}).items()}
        self.broker_ids = list(range(1, nodes + 1))
        candidates = range(nodes + 1, nodes + controllers + 1) if controllers else self.broker_ids
        self.controller_ids = list(candidates)
        if joiners >= len(self.controller_ids):
            raise InvalidArgument("a quorum needs a voter to begin with")
        self.first_voter_ids = self.controller_ids[: len(self.controller_ids) - joiners]
        self.machines: dict[int, SimMachine] = {}
        for node_id in sorted({*self.broker_ids, *self.controller_ids}):
            machine = self.world.machine(host_of(node_id), self._config(node_id))
            self.machines[node_id] = machine
        self._format()

    def _config(self, node_id: int) -> NodeConfig:
        host = host_of(node_id)
        listeners, roles = [], []
        if node_id in self.broker_ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{host}:{BROKER_PORT}")
        if node_id in self.controller_ids:
            roles.append("controller")
            listeners.append(f"{_LISTENER}://{host}:{CONTROLLER_PORT}")
        own = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "controller.listener.names": _LISTENER,
            "controller.quorum.bootstrap.servers": ",".join(
                f"{host_of(each)}:{CONTROLLER_PORT}" for each in self.controller_ids
            ),
            "log.dirs": "/data",
        }
        return node_config({**self._settings, **own})

    def _format(self) -> None:
        random = Random(f"{self.world.seed} format")
        cluster_id = str(Uuid.random(random))
        voters = VoterSet(
            Voter(
                ReplicaKey(node_id, Uuid.random(random)),
                {_LISTENER: Endpoint(host_of(node_id), CONTROLLER_PORT)},
                LOCAL_SUPPORTED_VERSIONS,
            )
            for node_id in self.first_voter_ids
        )
        for machine in self.machines.values():
            format_storage(
                machine.config,
                machine.disk,
                cluster_id=cluster_id,
                random=random,
                wall_ms=EPOCH_MS,
                controller_endpoints={},
                initial_voters=voters,
            )

    # Where it is.

    def node(self, node_id: int) -> Node:
        """A node that runs."""
        found = self.machines[node_id].node
        if found is None:
            raise InvalidArgument(f"node {node_id} is not running")
        return found

    @property
    def running(self) -> list[int]:
        """The ids of the nodes whose process runs, however well."""
        return [node_id for node_id, each in self.machines.items() if each.is_running]

    @property
    def serving(self) -> list[int]:
        """The ids of the nodes that are up."""
        return [node_id for node_id, each in self.machines.items() if each.is_serving]

    def controller_id(self) -> int | None:
        """The active controller of the newest epoch; None while there is none."""
        active = [
            (node.controller.epoch, node_id)
            for node_id, each in self.machines.items()
            if (node := each.node) is not None
            and node.controller is not None
            and node.controller.is_active
        ]
        return max(active)[1] if active else None

    # What happens to it.

    def start(self, *node_ids: int) -> None:
        """Start nodes, all that do not run unless told otherwise, and wait until they serve."""
        chosen = [self.machines[each] for each in node_ids or self.machines]
        for machine in chosen:
            if not machine.is_running:
                machine.start()
        self.run_until(
            lambda: all(each.is_serving for each in chosen), START_MAX_MS, "the nodes serve"
        )

    def run_for(self, ms: int) -> None:
        """Let time pass."""
        self.world.run_for(ms)

    def run_until(self, holds: Callable[[], bool], limit_ms: int, what: str) -> None:
        """Let time pass until something holds; an AssertionError says that it never did."""
        if not self.world.run_until(holds, limit_ms):
            raise AssertionError(f"after {limit_ms} ms of virtual time: not yet that {what}")

    def cut(self, source: int, target: int, *, both_ways: bool = True) -> None:
        """Let nothing through from one node to another, and the other way round."""
        self.world.network.cut(host_of(source), host_of(target))
        if both_ways:
            self.world.network.cut(host_of(target), host_of(source))

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all the others."""
        for other in self.machines:
            if other != node_id:
                self.cut(node_id, other)

    def heal(self) -> None:
        """Let every node reach every other again, at once."""
        self.world.network.mend_all()


def host_of(node_id: int) -> str:
    """The name of a node's machine."""
    return f"node{node_id}"
