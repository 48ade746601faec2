"""How the nodes of a cluster on this machine are, for `millstream cluster status` and `stop`.

While a supervisor runs, `supervisor.json` has what it knows. When it is gone, even killed, the
locks that nodes hold on their directories tell which of them still run.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.cluster_plan import node_config_of, node_directory
from millstream.cli.supervisor import NodeState
from millstream.errors import MillstreamError
from millstream.metadata.metadata_log import METADATA_PARTITION
from millstream.metadata.quorum_state_store import FileQuorumStateStore
from millstream.node.processes import find_holder, find_process
from millstream.storage.disk import DiskFileSystem
from millstream.storage.filesystem import LOCK_FILE_NAME, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.cli.cluster_plan import ClusterPlan, PlannedNode
    from millstream.node.processes import NodeProcess

_STATE_NAME: Final = "supervisor.json"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How one node's process is."""

    id: int
    state: NodeState
    pid: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How all of them are, and who watches them."""

    supervisor_pid: int | None
    nodes: tuple[NodeStatus, ...]


def write_state(directory: str, nodes: Sequence[NodeStatus]) -> None:
    """Leave a note of what this process, the supervisor, knows."""
    content = {"pid": os.getpid(), "nodes": [asdict(each) for each in nodes]}
    data = json.dumps(content, indent=2).encode() + b"\n"
    write_atomically(DiskFileSystem(), f"{directory}/{_STATE_NAME}", data, sync=False)


def find_supervisor(directory: str) -> NodeProcess | None:
    """The process that watches over a cluster."""
    return find_holder(f"{directory}/{LOCK_FILE_NAME}")


def find_node(directory: str, node: PlannedNode) -> NodeProcess | None:
    """The process of a node, whether or not anybody watches over it."""
    if not (Path(node_directory(directory, node)) / "data").exists():
        return None
    return find_process(node_config_of(directory, node))


def cluster_status(directory: str, plan: ClusterPlan) -> ClusterStatus:
    """How the nodes are now."""
    supervisor = find_supervisor(directory)
    noted = _read_state(directory)
    by_id = {each["id"]: each for each in noted.get("nodes", ())}
    if supervisor is not None:
        is_current = noted.get("pid") == supervisor.pid
        nodes = [
            NodeStatus(each.id, NodeState.STARTING)
            if not is_current or each.id not in by_id
            else _noted(by_id[each.id])
            for each in plan.nodes
        ]
        return ClusterStatus(supervisor.pid, tuple(nodes))
    orphans = []
    for node in plan.nodes:
        process = find_node(directory, node)
        if process is not None:
            orphans.append(NodeStatus(node.id, NodeState.RUNNING, process.pid))
            continue
        has_failed = by_id.get(node.id, {}).get("state") == NodeState.FAILED
        state = NodeState.FAILED if has_failed else NodeState.STOPPED
        orphans.append(NodeStatus(node.id, state))
    return ClusterStatus(None, tuple(orphans))


def leader_of_quorum(directory: str, plan: ClusterPlan) -> int | None:
    """The controller that led last, as the nodes have noted it; None if nobody has."""
    found = []
    for node in plan.controllers:
        log = f"{node_directory(directory, node)}/data/{METADATA_PARTITION}"
        # A file that cannot be read is for its node to complain of.
        with suppress(OSError, MillstreamError):
            election = FileQuorumStateStore(DiskFileSystem(), log).read()
            if election is not None and election.leader_id is not None:
                found.append(election)
    return max(found, key=lambda each: each.epoch).leader_id if found else None


def _noted(note: dict[str, Any]) -> NodeStatus:
    return NodeStatus(note["id"], NodeState(note["state"]), note["pid"], note["restarts"])


def _read_state(directory: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((Path(directory) / _STATE_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return found
