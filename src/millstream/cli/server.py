"""`millstream server` for help and completion; `main` sends it straight to the node.

The node's own parser needs neither typer nor rich and is ready sooner. A test keeps both alike.
"""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.options import AsJson, new_family
from millstream.cli.storage import ConfigFile, Data, NodeSettings
from millstream.node.main import STOP_TIMEOUT_S
from millstream.node.main import main as run_node

family = new_family("Run a node, stop it, see whether it runs.")


@family.command("start")
def start(
    data: Data = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST[:PORT]",
            help="What clients are told to connect to, where it differs from --listen.",
        ),
    ] = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    override_dynamic: Annotated[
        list[str] | None,
        typer.Option(
            "--override-dynamic",
            metavar="KEY=VALUE",
            help="A dynamic setting of the broker for this process, whatever the cluster says; "
            "for one that keeps clients out.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Say as JSON that it is ready, and write the log as JSON."),
    ] = False,
) -> None:
    """Run a node until it is told to stop. An empty directory is formatted first.

    SIGTERM or Ctrl-C stops it in order, a second one at once. Without `--data` it works in
    `millstream-data`, without `--listen` on localhost:9092. Of the listeners in a file `--listen`
    moves that of clients; the controller's stays. On every address (`0.0.0.0:9092`) clients are
    told to connect to the name of this machine, unless `--advertise` says otherwise.

    Example: `millstream server start --data /var/lib/millstream --listen 0.0.0.0:9092`
    """
    arguments = _common(data, config, settings)
    if listen is not None:
        arguments += ["--listen", listen]
    if advertise is not None:
        arguments += ["--advertise", advertise]
    for each in override_dynamic or ():
        arguments += ["--override-dynamic", each]
    raise typer.Exit(run_node(["server", "start", *arguments, *_json(as_json)]))


@family.command("stop")
def stop(
    data: Data = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for it.")
    ] = STOP_TIMEOUT_S,
    force: Annotated[bool, typer.Option("--force", help="Then end it at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the node that runs on a directory, in order, and wait until it has.

    Example: `millstream server stop --data /var/lib/millstream`
    """
    arguments = [*_common(data, config, settings), "--timeout", str(timeout)]
    if force:
        arguments.append("--force")
    raise typer.Exit(run_node(["server", "stop", *arguments, *_json(as_json)]))


@family.command("status")
def status(
    data: Data = None,
    config: ConfigFile = None,
    settings: NodeSettings = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a node runs on a directory; exit code 3 if none does.

    Example: `millstream server status --data /var/lib/millstream`
    """
    arguments = [*_common(data, config, settings), *_json(as_json)]
    raise typer.Exit(run_node(["server", "status", *arguments]))


def _json(as_json: bool) -> list[str]:
    return ["--json"] if as_json else []


def _common(data: str | None, config: str | None, settings: list[str] | None) -> list[str]:
    arguments = []
    if data is not None:
        arguments += ["--data", data]
    if config is not None:
        arguments += ["--config", config]
    for each in settings or ():
        arguments += ["--set", each]
    return arguments
