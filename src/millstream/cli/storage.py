"""`millstream storage`: take directories for a node, look whose they are, make ids."""

from __future__ import annotations

import os
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.faults import CommandFailed, ExitCode, UsageFault
from millstream.cli.options import AsJson, new_family
from millstream.cli.output import complain, note, show_json, show_rows
from millstream.cli.scram_option import SCRAM_SYNTAX, parse_scram
from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.metadata.features import (
    FEATURES,
    METADATA_VERSION,
    SCRAM_SINCE,
    metadata_version_name,
    parse_metadata_version,
)
from millstream.node.formatting import (
    configured_controllers,
    format_storage,
    random_uuid,
    storage_info,
)
from millstream.node.main import read_config
from millstream.raft.config import parse_initial_voters
from millstream.raft.voters import VoterSet
from millstream.storage.disk import DiskFileSystem
from millstream.storage.manager.meta_properties import require_one_owner

if TYPE_CHECKING:
    from millstream.node.config import NodeConfig
    from millstream.node.formatting import StorageInfo
    from millstream.protocol.messages.security_records import UserScramCredentialRecord

family = new_family("The directories of a node.")

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The node's directory (log.dirs)."),
]
ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="The node's server.properties.")
]
NodeSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting by Kafka's key; repeatable."),
]


FeatureLevels = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="One set otherwise; repeatable."),
]
FirstUsers = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[...]",
        help=f"A first user, {SCRAM_SYNTAX}; repeatable.",
    ),
]
Standalone = Annotated[
    bool, typer.Option("--standalone", help="This controller is the first and only voter.")
]
InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="The first voters, the same on each; `storage random-uuid` makes directory ids.",
    ),
]
NoInitialControllers = Annotated[
    bool, typer.Option("--no-initial-controllers", help="This node joins a quorum that there is.")
]


@family.command("format")
def format_directories(
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", "-t", metavar="ID", help="The cluster's; else a new one."),
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    release_version: Annotated[
        str,
        typer.Option("--release-version", metavar="VERSION", help="Which features it starts with."),
    ] = metadata_version_name(max(FEATURES[METADATA_VERSION].starts_with)),
    feature: FeatureLevels = None,
    add_scram: FirstUsers = None,
    standalone: Standalone = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: NoInitialControllers = False,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Directories that are formatted are fine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take the directories of a node for a cluster.

    A server that finds its directories empty and is alone does this by itself. It is for nodes of
    a cluster with others, which must have the same id, and for features that differ from the
    defaults. Of a dynamic quorum (no controller.quorum.voters) the first voters are this controller
    alone, unless they are named or there is a quorum to join.

    Example: `millstream storage format --cluster-id $(millstream storage random-uuid) --data DIR`
    """
    node = read_config(os.environ, file=config, data=data, settings=settings or ())
    voters = _first_voters(
        node,
        initial_controllers,
        is_standalone=standalone,
        joins_later=no_initial_controllers,
    )
    users = _first_users(add_scram or [], parse_metadata_version(release_version))
    filesystem, random = DiskFileSystem(), SystemRandom()
    info = storage_info(node, filesystem)
    if info.metas and not ignore_formatted:
        raise CommandFailed(
            f"{', '.join(info.metas)} is formatted already; --ignore-formatted leaves it as it is "
            "and formats the others"
        )
    owner = cluster_id or info.cluster_id or random_uuid(random)
    formatted = format_storage(
        node,
        filesystem,
        cluster_id=owner,
        random=random,
        wall_ms=SystemClock().wall_ms(),
        controller_endpoints=configured_controllers(node),
        metadata_version=parse_metadata_version(release_version),
        features=_levels(feature or []),
        initial_voters=voters,
        scram=users,
    )
    if as_json:
        show_json({"cluster_id": owner, "formatted": formatted})
    for path in formatted:
        note(f"{path}: formatted for cluster {owner}, node {node.process.node_id}", as_json=as_json)
    if not formatted:
        note("nothing to do: every directory is formatted", as_json=as_json)


def _first_users(options: list[str], metadata_version: int) -> list[UserScramCredentialRecord]:
    users = [parse_scram(each) for each in options]
    if users and metadata_version < SCRAM_SINCE:
        name = metadata_version_name(SCRAM_SINCE)
        raise UsageFault(f"--add-scram needs --release-version {name} or higher")
    if len({(each.name, each.mechanism) for each in users}) < len(users):
        raise UsageFault("--add-scram: a user is given twice with the same mechanism")
    return users


def _first_voters(
    node: NodeConfig, listed: str | None, *, is_standalone: bool, joins_later: bool
) -> VoterSet | None:
    """The voters that a dynamic quorum begins with; None for this node alone."""
    given = [is_standalone, listed is not None, joins_later]
    if sum(given) > 1:
        raise UsageFault(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other"
        )
    if any(given) and node.quorum.voters:
        raise UsageFault(
            "the voters are those of controller.quorum.voters: leave that out for a dynamic "
            "quorum, or leave out --standalone, --initial-controllers or --no-initial-controllers"
        )
    if (is_standalone or listed is not None) and not node.is_controller:
        raise UsageFault("this node is no controller by process.roles: name no first voters")
    if joins_later:
        return VoterSet()
    if listed is None:
        return None
    listener = node.network.controller_listener_names[0].upper()
    try:
        return parse_initial_voters(listed, listener)
    except InvalidArgument as error:
        raise UsageFault(f"--initial-controllers: {error}") from error


@family.command("info")
def show_info(
    data: Data = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    as_json: AsJson = False,
) -> None:
    """Show whose the directories of a node are; fails if it could not start on them.

    Example: `millstream storage info --config server.properties`
    """
    node = read_config(os.environ, file=config, data=data, settings=settings or ())
    info = storage_info(node, DiskFileSystem())
    problem = _problem(node, info)
    rows: list[dict[str, Any]] = []
    for path in node.directories:
        meta = info.metas.get(path)
        rows.append(
            {
                "directory": path,
                "formatted": meta is not None,
                "cluster_id": None if meta is None else meta.cluster_id,
                "node_id": None if meta is None else meta.node_id,
                "directory_id": None if meta is None else _text(meta.directory_id),
                "metadata": path == node.metadata_dir,
            }
        )
    if as_json:
        show_json({"directories": rows, "problem": problem})
    else:
        headings = {"directory": "DIRECTORY", "cluster_id": "CLUSTER", "node_id": "NODE"}
        headings |= {"directory_id": "DIRECTORY ID", "metadata": "METADATA"}
        show_rows(rows, headings, as_json=False)
    if problem is not None:
        if not as_json:
            complain(problem)
        raise typer.Exit(ExitCode.FAILED)


@family.command("random-uuid")
def show_random_uuid(as_json: AsJson = False) -> None:
    """Make an id for a new cluster.

    Example: `millstream storage random-uuid`
    """
    made = random_uuid(SystemRandom())
    if as_json:
        show_json({"uuid": made})
    note(made, as_json=as_json)


def _problem(node: NodeConfig, info: StorageInfo) -> str | None:
    if info.unformatted:
        listed = ", ".join(info.unformatted)
        return f"{listed}: not formatted; `millstream storage format`, or a first start, does it"
    try:
        cluster_id = info.cluster_id
        if cluster_id is None:
            return "no directory names its cluster; format them with `millstream storage format`"
        require_one_owner(info.metas, cluster_id, node.process.node_id)
    except KafkaStorageError as error:
        return str(error)
    return None


def _levels(features: list[str]) -> dict[str, int]:
    levels = {}
    for text in features:
        name, equals, level = text.partition("=")
        if not equals or not level.isdecimal():
            raise UsageFault(f"--feature {text}: write it as name=level, such as share.version=1")
        levels[name] = int(level)
    return levels


def _text(value: object) -> str | None:
    return None if value is None else str(value)
