"""`millstream cluster`: who is in it and who decides; and whole clusters on this machine.

`start` runs the nodes of a cluster as processes, `stop` and `status` find them again by the
directory that they share.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.brokers import broker_rows
from millstream.cli.cluster_plan import (
    DEFAULT_LISTEN,
    DEFAULT_NODES,
    check_counts,
    format_nodes,
    new_plan,
    node_config_of,
    read_plan,
    require_free_ports,
    require_plan,
    require_room,
    require_same_nodes,
    write_plan,
    write_properties,
)
from millstream.cli.cluster_state import cluster_status, find_node, find_supervisor
from millstream.cli.faults import CommandFailed, ExitCode, UsageFault
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    new_family,
)
from millstream.cli.output import complain, note, show_facts, show_json, show_json_line, show_rows
from millstream.cli.session import open_session
from millstream.cli.storage import NodeSettings
from millstream.cli.supervisor import NodeState
from millstream.clock import SystemClock
from millstream.errors import InvalidConfig, KafkaStorageError
from millstream.metadata.features import METADATA_VERSION, metadata_version_name
from millstream.node.main import END_OF_CLUSTER, STOP_TIMEOUT_S
from millstream.node.processes import stop_processes
from millstream.node.properties import parse_assignments
from millstream.storage.disk import DiskFileSystem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.cli.cluster_plan import ClusterPlan, PlannedNode
    from millstream.cli.cluster_state import ClusterStatus, NodeStatus
    from millstream.node.processes import NodeProcess
    from millstream.storage.filesystem import DirectoryLock

family = new_family("The cluster as a whole, and clusters on this machine.")

Directory = Annotated[
    str, typer.Option("--data", metavar="DIR", help="Where all nodes keep everything.")
]
DEFAULT_DIRECTORY: Final = "millstream-cluster"
_STATUS_HEADINGS: Final = {
    "node": "NODE",
    "roles": "ROLES",
    "address": "ADDRESS",
    "pid": "PID",
    "state": "STATE",
    "restarts": "RESTARTS",
}


@family.callback()
def cluster() -> None:
    """The cluster as a whole, and clusters on this machine."""


@family.command("describe")
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's id, controller, brokers and features.

    Example: `millstream cluster describe`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_cluster(include_fenced_brokers=True)
        levels = session.admin.describe_features()
    brokers = broker_rows(found)
    features: list[dict[str, Any]] = [
        {
            "feature": each.name,
            "level": each.level,
            "release": _release(each.name, each.level),
            "supported": f"{each.min_supported}-{each.max_supported}",
        }
        for _, each in sorted(levels.items())
    ]
    facts = {"cluster_id": found.cluster_id, "controller": found.controller_id}
    if as_json:
        show_json(facts | {"brokers": brokers, "features": features})
        return
    show_facts(facts, as_json=False)
    typer.echo()
    headings = {"broker": "BROKER", "host": "HOST", "port": "PORT", "rack": "RACK"}
    show_rows(brokers, headings | {"fenced": "FENCED"}, as_json=False)
    typer.echo()
    headings = {"feature": "FEATURE", "level": "LEVEL", "supported": "SUPPORTED"}
    show_rows(features, headings | {"release": "RELEASE"}, as_json=False)


def _release(name: str, level: int) -> str | None:
    return metadata_version_name(level) if name == METADATA_VERSION else None


# A cluster on this machine.


@family.command("start")
def start(
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help=f"How many brokers; {DEFAULT_NODES} if new."),
    ] = None,
    controllers: Annotated[
        int | None,
        typer.Option(
            "--controllers",
            metavar="M",
            help="So many more nodes that are controllers alone; else each broker is one, too.",
        ),
    ] = None,
    data: Directory = DEFAULT_DIRECTORY,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Where the first broker listens, the others on the ports after it; "
            f"{DEFAULT_LISTEN} if new.",
        ),
    ] = None,
    settings: NodeSettings = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Say as JSON that it is ready, and write the logs as JSON."),
    ] = False,
) -> None:
    """Run a cluster of several nodes on this machine until it is told to stop.

    Each node is a process of its own, and is started again when it dies. A new directory is
    formatted first; what it was made with is kept for the next start. SIGTERM, Ctrl-C or
    `millstream cluster stop` stops the nodes in order, a second signal at once. Below the directory
    each node has one of its own with its data, log and settings.

    Example: `millstream cluster start --nodes 3 --data /var/lib/millstream-cluster`
    """
    from millstream.cli.cluster_run import ClusterRun

    check_counts(nodes, controllers)
    directory = _directory(data)
    assigned = _assigned(settings, as_json=as_json)
    require_room(directory)
    found = read_plan(directory)
    if found is not None:
        require_same_nodes(found, directory, nodes, controllers)
        plan = found if listen is None else found.with_listen(listen)
    else:
        size = (nodes or DEFAULT_NODES, controllers or 0)
        plan = new_plan(*size, listen or DEFAULT_LISTEN, SystemRandom())
    lock = _lock(directory)
    try:
        plan = _prepare(directory, plan, assigned)

        def announce(running: Sequence[NodeStatus]) -> None:
            _announce(directory, plan, running, as_json=as_json)

        is_fine = asyncio.run(ClusterRun(directory, plan, announce).run())
    finally:
        lock.release()
    raise typer.Exit(ExitCode.OK if is_fine else ExitCode.FAILED)


@family.command("stop")
def stop(
    data: Directory = DEFAULT_DIRECTORY,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for it.")
    ] = STOP_TIMEOUT_S,
    force: Annotated[bool, typer.Option("--force", help="Then end it at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the cluster that runs on a directory, in order, and wait until it has.

    Nodes whose supervisor was killed are stopped as well.

    Example: `millstream cluster stop --data /var/lib/millstream-cluster`
    """
    if timeout <= 0:
        raise UsageFault("--timeout is a number of seconds above 0")
    directory = _directory(data)
    plan = require_plan(directory)
    timeout_ms = int(timeout * 1000)
    supervisor = find_supervisor(directory)
    processes = [supervisor] if supervisor is not None else _nodes_left(directory, plan.nodes)
    if not processes:
        raise CommandFailed(f"no cluster runs on {directory}")
    pids = [each.pid for each in processes]
    listed = ", ".join(map(str, pids))
    note(f"stopping the cluster on {directory} (process {listed})", as_json=as_json)
    if supervisor is not None:
        _stop_all([supervisor], timeout_ms, signal.SIGTERM, force=force)
    # Without a supervisor, or what one has left that had to be killed.
    if supervisor is None or force:
        apart = [each for each in plan.nodes if not each.is_controller]
        left = _nodes_left(directory, apart)
        _stop_all(left, timeout_ms, signal.SIGTERM, force=force)
        left = _nodes_left(directory, plan.controllers)
        _stop_all(left, timeout_ms, END_OF_CLUSTER, force=force)
    if as_json:
        show_json({"stopped": pids})
    note("stopped", as_json=as_json)


@family.command("status")
def status(data: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Show the nodes of a cluster on this machine, even if nobody watches over them any more.

    The exit code is 0 if all of them run, 1 if some do, 3 if none does.

    Example: `millstream cluster status --data /var/lib/millstream-cluster`
    """
    directory = _directory(data)
    plan = require_plan(directory)
    found = cluster_status(directory, plan)
    rows = _rows(plan, found.nodes)
    if as_json:
        facts = {"data": directory, "supervisor_pid": found.supervisor_pid}
        facts |= {"cluster_id": plan.cluster_id, "bootstrap_servers": plan.bootstrap_servers}
        show_json(facts | {"nodes": rows})
    else:
        show_rows(rows, _STATUS_HEADINGS, as_json=False)
    running = sum(each.state is NodeState.RUNNING for each in found.nodes)
    if running and found.supervisor_pid is None and not as_json:
        complain(f"nobody watches over these nodes; `millstream cluster stop --data {directory}`")
    raise typer.Exit(_exit_code(found))


def _exit_code(found: ClusterStatus) -> ExitCode:
    alive = [each for each in found.nodes if each.state is NodeState.RUNNING]
    if len(alive) == len(found.nodes):
        return ExitCode.OK
    return ExitCode.FAILED if alive or found.supervisor_pid is not None else ExitCode.UNREACHABLE


def _nodes_left(directory: str, nodes: Sequence[PlannedNode]) -> list[NodeProcess]:
    found = [find_node(directory, each) for each in nodes]
    return [each for each in found if each is not None]


def _stop_all(
    processes: Sequence[NodeProcess], timeout_ms: int, number: signal.Signals, *, force: bool
) -> None:
    left = stop_processes(
        processes,
        timeout_ms=timeout_ms,
        force=force,
        clock=SystemClock(),
        sleep_ms=lambda ms: time.sleep(ms / 1000),
        asked_by=number,
    )
    if left:
        listed = ", ".join(str(each.pid) for each in left)
        raise CommandFailed(
            f"process {listed} is still stopping after {timeout_ms / 1000:g} s; wait, or end it at "
            "once with --force"
        )


def _announce(
    directory: str, plan: ClusterPlan, running: Sequence[NodeStatus], *, as_json: bool
) -> None:
    if as_json:
        facts = {"ready": True, "pid": os.getpid(), "bootstrap_servers": plan.bootstrap_servers}
        facts |= {"cluster_id": plan.cluster_id, "data": directory}
        show_json_line(facts | {"nodes": _rows(plan, running)})
    else:
        typer.echo(f"millstream is ready: {plan.bootstrap_servers}")


def _rows(plan: ClusterPlan, statuses: Sequence[NodeStatus]) -> list[dict[str, Any]]:
    return [
        {
            "node": node.id,
            "roles": list(node.roles),
            "address": plan.address(node),
            "pid": each.pid,
            "state": str(each.state),
            "restarts": each.restarts,
        }
        for node, each in zip(plan.nodes, statuses, strict=True)
    ]


def _directory(data: str) -> str:
    if "," in data or not data:
        raise UsageFault(f"--data {data}: must be one directory, without a comma in its name")
    return str(Path(data).absolute())


def _assigned(settings: list[str] | None, *, as_json: bool) -> dict[str, str]:
    try:
        assigned = parse_assignments(settings or ())
    except InvalidConfig as error:
        raise UsageFault(str(error)) from error
    return {"millstream.log.format": "json" if as_json else "human", **assigned}


def _lock(directory: str) -> DirectoryLock:
    filesystem = DiskFileSystem()
    filesystem.make_directory(directory)
    try:
        return filesystem.lock_directory(directory)
    except KafkaStorageError as error:
        raise CommandFailed(
            f"a cluster runs on {directory} already; `millstream cluster status --data {directory}`"
        ) from error


def _prepare(directory: str, plan: ClusterPlan, settings: Mapping[str, str]) -> ClusterPlan:
    """Make everything ready for the nodes to start, or say why they could not."""
    filesystem = DiskFileSystem()
    _require_no_orphans(directory, plan)
    require_free_ports(plan)
    write_plan(filesystem, directory, plan)
    write_properties(filesystem, directory, plan, settings)
    for node in plan.nodes:
        node_config_of(directory, node)  # A wrong setting is told at once.
    if plan.is_formatted:
        return plan
    wall_ms = SystemClock().wall_ms()
    return format_nodes(filesystem, directory, plan, SystemRandom(), wall_ms)


def _require_no_orphans(directory: str, plan: ClusterPlan) -> None:
    left = [each.id for each in plan.nodes if find_node(directory, each) is not None]
    if left:
        listed = ", ".join(map(str, left))
        raise CommandFailed(
            f"of the cluster on {directory} node {listed} still runs, without a supervisor; end it "
            f"with `millstream cluster stop --data {directory}`"
        )
