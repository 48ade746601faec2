"""The nodes of a cluster on one machine, as `millstream cluster start` keeps them in a directory.

`cluster.json` has the ids, roles and ports, so that the next start finds the same cluster. Below
the directory each node has one of its own: `server.properties`, `millstream.log` and `data`.
"""

from __future__ import annotations

import errno
import json
import socket
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.network.endpoint import PORT_MAX, host_and_port, parse_listener
from millstream.node.formatting import format_storage, random_uuid
from millstream.node.main import read_config
from millstream.raft.config import parse_initial_voters
from millstream.storage.filesystem import write_atomically
from millstream.storage.manager.meta_properties import META_PROPERTIES_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from millstream.node.config import NodeConfig
    from millstream.storage.filesystem import FileSystem

PLAN_NAME: Final = "cluster.json"
PROPERTIES_NAME: Final = "server.properties"
LOG_NAME: Final = "millstream.log"
DEFAULT_LISTEN: Final = "127.0.0.1:9092"
DEFAULT_NODES: Final = 3
NODES_MAX: Final = 100
"""More are a slip of the finger on one machine."""
_CONTROLLER_HOST: Final = "127.0.0.1"
_CONTROLLER: Final = "CONTROLLER"
_CLIENTS: Final = "PLAINTEXT"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node: who it is and where it listens."""

    id: int
    client_port: int | None
    """None for a controller alone."""
    controller_port: int | None
    """None for a broker alone."""
    directory_id: str
    """Of its metadata directory, by which voters are known."""

    @property
    def roles(self) -> tuple[str, ...]:
        """As `process.roles` has them."""
        broker = () if self.client_port is None else ("broker",)
        return broker if self.controller_port is None else (*broker, "controller")

    @property
    def is_controller(self) -> bool:
        """Whether it votes."""
        return self.controller_port is not None


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All nodes of a cluster on this machine."""

    cluster_id: str
    host: str
    """Where brokers listen; controllers are for this machine alone."""
    nodes: tuple[PlannedNode, ...]
    is_formatted: bool = False
    """Whether each node has had its directory: one without is lost then, and no new one."""

    @property
    def brokers(self) -> list[PlannedNode]:
        """The nodes that clients talk to."""
        return [each for each in self.nodes if each.client_port is not None]

    @property
    def controllers(self) -> list[PlannedNode]:
        """The nodes that vote."""
        return [each for each in self.nodes if each.is_controller]

    @property
    def roles_apart(self) -> int:
        """The number of nodes that are controllers alone."""
        return sum(each.client_port is None for each in self.nodes)

    def address(self, node: PlannedNode) -> str:
        """Where a node is found: by clients, or by the tools for controllers."""
        if node.client_port is not None:
            return host_and_port(_reachable(self.host), node.client_port)
        return host_and_port(_CONTROLLER_HOST, node.controller_port or 0)

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return ",".join(self.address(each) for each in self.brokers)

    def with_listen(self, listen: str) -> ClusterPlan:
        """The same nodes, with the brokers at other addresses."""
        host, ports = _client_ports(listen, len(self.brokers))
        left = iter(ports)
        nodes = [
            each if each.client_port is None else replace(each, client_port=next(left))
            for each in self.nodes
        ]
        return replace(self, host=host, nodes=tuple(nodes))


def new_plan(nodes: int, controllers: int, listen: str, random: Random) -> ClusterPlan:
    """Brokers have the ids from 1 on; controllers of their own those after them."""
    host, client_ports = _client_ports(listen, nodes)
    voters = controllers or nodes
    controller_ports = _free_ports(voters, taken=client_ports)
    planned = []
    for number in range(nodes + controllers):
        own_voter = number - nodes if controllers else number
        planned.append(
            PlannedNode(
                number + 1,
                client_ports[number] if number < nodes else None,
                controller_ports[own_voter] if own_voter >= 0 else None,
                random_uuid(random),
            )
        )
    return ClusterPlan(random_uuid(random), host, tuple(planned))


def check_counts(nodes: int | None, controllers: int | None) -> None:
    """Refuse numbers of nodes that are none."""
    if nodes is not None and not 1 <= nodes <= NODES_MAX:
        raise UsageFault(f"--nodes {nodes}: must be from 1 to {NODES_MAX}")
    if controllers is not None and not 0 <= controllers <= NODES_MAX:
        raise UsageFault(f"--controllers {controllers}: must be from 0 to {NODES_MAX}")


def read_plan(directory: str) -> ClusterPlan | None:
    """The cluster in a directory; None if there is none."""
    path = Path(directory) / PLAN_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise CommandFailed(f"{path} was written by a later version: use that one")
        nodes = tuple(PlannedNode(**each) for each in found["nodes"])
        return ClusterPlan(found["cluster_id"], found["host"], nodes, found["is_formatted"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(
            f"{path} is damaged ({error}): restore it, or start anew in another directory"
        ) from error


def require_plan(directory: str) -> ClusterPlan:
    """The cluster in a directory, which there must be."""
    plan = read_plan(directory)
    if plan is None:
        raise CommandFailed(
            f"{directory} has no cluster; `millstream cluster start --data {directory}` makes one"
        )
    return plan


def write_plan(filesystem: FileSystem, directory: str, plan: ClusterPlan) -> None:
    """Keep the plan for the next start."""
    text: dict[str, Any] = {"format": _FORMAT, **asdict(plan)}
    data = json.dumps(text, indent=2).encode() + b"\n"
    write_atomically(filesystem, f"{directory}/{PLAN_NAME}", data)


def require_same_nodes(
    plan: ClusterPlan, directory: str, nodes: int | None, controllers: int | None
) -> None:
    """A cluster that there is keeps its nodes."""
    brokers, apart = len(plan.brokers), plan.roles_apart
    if nodes in (None, brokers) and controllers in (None, apart):
        return
    options = f"--nodes {brokers}" + (f" --controllers {apart}" if apart else "")
    raise CommandFailed(
        f"{directory} has a cluster that was made with {options}: start it with that or without "
        "these options, or give another directory"
    )


def require_room(directory: str) -> None:
    """A new cluster takes nobody's data."""
    if (Path(directory) / META_PROPERTIES_FILE).exists():
        raise CommandFailed(
            f"{directory} is the data directory of a single server (`millstream server start`): "
            "give another one for a cluster"
        )


def require_free_ports(plan: ClusterPlan) -> None:
    """Say which node's port is taken before any of them starts."""
    for node in plan.nodes:
        if node.client_port is not None:
            _require_free(node, plan.host, node.client_port, "choose others with --listen")
        if node.controller_port is not None:
            way = "this one stays the controller's: end what has it"
            _require_free(node, _CONTROLLER_HOST, node.controller_port, way)


# The files of a node.


def node_directory(directory: str, node: PlannedNode) -> str:
    """Where a node has everything."""
    return f"{directory}/node-{node.id}"


def own_settings(directory: str, plan: ClusterPlan, node: PlannedNode) -> dict[str, str]:
    """What makes a node this one, by Kafka's keys."""
    listeners = []
    if node.client_port is not None:
        listeners.append(f"{_CLIENTS}://{host_and_port(plan.host, node.client_port)}")
    if node.controller_port is not None:
        listeners.append(f"{_CONTROLLER}://{_CONTROLLER_HOST}:{node.controller_port}")
    quorum = [f"{_CONTROLLER_HOST}:{each.controller_port}" for each in plan.controllers]
    return {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(listeners),
        "controller.listener.names": _CONTROLLER,
        "controller.quorum.bootstrap.servers": ",".join(quorum),
        "log.dirs": f"{node_directory(directory, node)}/data",
    }


def write_properties(
    filesystem: FileSystem, directory: str, plan: ClusterPlan, settings: Mapping[str, str]
) -> None:
    """Write each node's `server.properties`; what makes it this node wins over `settings`."""
    for node in plan.nodes:
        own = own_settings(directory, plan, node)
        path = node_directory(directory, node)
        filesystem.make_directory(path)
        lines = ["# Written by every `millstream cluster start`; --set changes it.", ""]
        lines += [f"{key}={_escaped(value)}" for key, value in {**settings, **own}.items()]
        data = "\n".join([*lines, ""]).encode()
        write_atomically(filesystem, f"{path}/{PROPERTIES_NAME}", data, sync=False)


def node_config_of(directory: str, node: PlannedNode) -> NodeConfig:
    """The settings of a node, as it reads them."""
    return read_config({}, file=f"{node_directory(directory, node)}/{PROPERTIES_NAME}")


def format_nodes(
    filesystem: FileSystem, directory: str, plan: ClusterPlan, random: Random, wall_ms: int
) -> ClusterPlan:
    """Take the directories of a new cluster; again after a crash is fine."""
    listed = ",".join(
        f"{each.id}@{_CONTROLLER_HOST}:{each.controller_port}:{each.directory_id}"
        for each in plan.controllers
    )
    voters = parse_initial_voters(listed, _CONTROLLER)
    for node in plan.nodes:
        format_storage(
            node_config_of(directory, node),
            filesystem,
            cluster_id=plan.cluster_id,
            random=random,
            wall_ms=wall_ms,
            controller_endpoints={},
            initial_voters=voters,
        )
    formatted = replace(plan, is_formatted=True)
    write_plan(filesystem, directory, formatted)
    return formatted


# Ports.


def _client_ports(listen: str, count: int) -> tuple[str, list[int]]:
    parsed = parse_listener(f"{_CLIENTS}://{listen}")
    if parsed is None:
        raise UsageFault(
            f"--listen {listen}: write it as HOST:PORT, such as {DEFAULT_LISTEN}; nodes after the "
            "first have the ports after it"
        )
    _, host, first = parsed
    if first == 0:
        return host, _free_ports(count)
    if first + count - 1 > PORT_MAX:
        raise UsageFault(
            f"--listen {listen}: {count} nodes need ports up to {first + count - 1}, and the last "
            f"one is {PORT_MAX}"
        )
    return host, list(range(first, first + count))


def _free_ports(count: int, taken: Sequence[int] = ()) -> list[int]:
    """Ports that nobody listens on now; they differ because all are held until the last."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            probe.bind((_CONTROLLER_HOST, 0))
            port: int = probe.getsockname()[1]
            if port not in taken:
                ports.append(port)
    return ports


def _require_free(node: PlannedNode, host: str, port: int, way: str) -> None:
    where = f"{host_and_port(host, port)} of node {node.id}"
    try:
        for family, address in _addresses(host, port):
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandFailed(f"{where} is in use by another process: {way}") from error
        raise CommandFailed(f"cannot listen on {where}: {error.strerror}") from error


def _addresses(host: str, port: int) -> Iterable[tuple[int, Any]]:
    """What a listener binds first of all."""
    found = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return [(family, address) for family, _, _, _, address in found[:1]]


def _reachable(host: str) -> str:
    """Where clients of this machine connect if brokers listen on every address."""
    return {"": "localhost", "0.0.0.0": "localhost", "::": "localhost"}.get(host, host)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
