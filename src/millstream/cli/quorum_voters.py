"""`millstream quorum add` and `remove`: the voters of a dynamic quorum, one at a time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Yes,
)
from millstream.cli.output import note, require_consent, show_json
from millstream.cli.session import open_session
from millstream.cli.storage import ConfigFile, NodeSettings
from millstream.client.admin.cluster import QuorumEndpoint
from millstream.network.endpoint import parse_listener
from millstream.node.formatting import configured_controllers, storage_info
from millstream.node.main import read_config
from millstream.storage.disk import DiskFileSystem
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.admin.cluster import QuorumReplica

DirectoryId = Annotated[
    str | None,
    typer.Option(
        "--directory-id",
        metavar="ID",
        help="Of its metadata directory; else what the quorum has heard of it.",
    ),
]


def add(
    node: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="The id of a controller that runs.")
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="NAME://HOST:PORT",
            help="Where other controllers reach it, such as CONTROLLER://host:9093; repeatable.",
        ),
    ] = None,
    directory_id: DirectoryId = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Make a controller a voter that was formatted with --no-initial-controllers and runs.

    Who it is and where is given, or read from its `server.properties` and its directory on this
    machine, as Apache Kafka's tool does it.

    Example: `millstream quorum add --config controller.properties`
    """
    if (config is None) == (node is None):
        raise UsageFault("give the id of the controller, or its settings with --config")
    endpoints = [_endpoint(each) for each in endpoint or ()]
    known_as = None if directory_id is None else _uuid(directory_id)
    if config is not None:
        node, known_as, endpoints = _from_config(config, settings or [])
    assert node is not None
    if not endpoints:
        raise UsageFault("say where the controller is with --endpoint CONTROLLER://HOST:PORT")
    with open_session(bootstrap_server, timeout) as session:
        quorum = session.admin.describe_quorum()
        if known_as is None:
            known_as = _find(node, quorum.observers, "observer: does it run? Else --directory-id")
        session.admin.add_raft_voter(node, known_as, endpoints)
    if as_json:
        show_json({"node": node, "directory_id": str(known_as), "added": True})
    note(f"node {node}: a voter now, with directory {known_as}", as_json=as_json)


def remove(
    node: Annotated[int, typer.Argument(metavar="ID", help="The voter's id.")],
    directory_id: DirectoryId = None,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Take a voter out of the quorum; if it runs, it goes on as an observer.

    Example: `millstream quorum remove 3`
    """
    known_as = None if directory_id is None else _uuid(directory_id)
    with open_session(bootstrap_server, timeout) as session:
        voters = session.admin.describe_quorum().voters
        if known_as is None:
            known_as = _find(node, voters, "voter")
        left = len(voters) - 1
        question = f"Take node {node} out of the quorum, which then has {left} voters?"
        require_consent(question, is_given=yes)
        session.admin.remove_raft_voter(node, known_as)
    if as_json:
        show_json({"node": node, "directory_id": str(known_as), "removed": True})
    note(f"node {node}: no voter any more", as_json=as_json)


def _find(node: int, replicas: Iterable[QuorumReplica], role: str) -> Uuid:
    """The directory of a node of the quorum."""
    known = {each.node_id: each.directory_id for each in replicas}
    if node not in known:
        raise CommandFailed(f"node {node} is no {role}")
    found = known[node]
    if found is None:
        raise CommandFailed(f"the quorum does not say the directory of node {node}: --directory-id")
    return found


def _from_config(config: str, settings: list[str]) -> tuple[int, Uuid, list[QuorumEndpoint]]:
    """Who a controller of this machine is, by its settings and its directory."""
    node = read_config(os.environ, file=config, settings=settings)
    if not node.is_controller:
        raise UsageFault(f"--config {config}: the node is no controller by process.roles")
    meta = storage_info(node, DiskFileSystem()).metas.get(node.metadata_dir)
    if meta is None or meta.directory_id is None:
        raise CommandFailed(
            f"{node.metadata_dir} is not formatted; `millstream storage format --config {config} "
            "--no-initial-controllers`"
        )
    endpoints = [
        QuorumEndpoint(name, each.host, each.port)
        for name, each in configured_controllers(node).items()
    ]
    return node.process.node_id, meta.directory_id, endpoints


def _endpoint(text: str) -> QuorumEndpoint:
    parsed = parse_listener(text)
    if parsed is None or not parsed[1] or not parsed[2]:
        raise UsageFault(f"--endpoint {text}: write it as NAME://HOST:PORT")
    return QuorumEndpoint(*parsed)


def _uuid(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise UsageFault(f"--directory-id {text}: {error}") from error
