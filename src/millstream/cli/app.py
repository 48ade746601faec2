"""All commands in one tree, and what happens to their errors.

`main` runs it. Whatever a command raises on purpose becomes one line on stderr and an exit code;
anything else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
import typer.main
from typer.core import TyperGroup

from millstream import __version__
from millstream.cli.faults import (
    CommandFailed,
    ExitCode,
    UsageFault,
    nearest,
    one_line,
    unreachable_line,
)
from millstream.cli.options import PRINT_JSON, add_output_option
from millstream.cli.output import choose_format, complain
from millstream.errors import ApiError, BrokerUnreachable, MillstreamError, OperationTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM: Final = "millstream"
HELP_OPTIONS: Final = ["-h", "--help"]


class _Place(NamedTuple):
    """Where a command is, so that only the one that is run is imported."""

    module: str
    attribute: str
    panel: str


_RECORDS, _CLUSTER, _NODE, _SPARK = "Records", "A cluster", "A node", "Spark"
COMMANDS: Final[Mapping[str, _Place]] = {
    "produce": _Place("produce", "produce", _RECORDS),
    "consume": _Place("consume", "consume", _RECORDS),
    "replay": _Place("replay", "replay", _RECORDS),
    "offsets": _Place("offsets", "offsets", _RECORDS),
    "perf": _Place("perf", "family", _RECORDS),
    "topics": _Place("topics", "family", _CLUSTER),
    "groups": _Place("groups", "family", _CLUSTER),
    "share-groups": _Place("share_groups", "family", _CLUSTER),
    "transactions": _Place("transactions", "family", _CLUSTER),
    "configs": _Place("configs", "family", _CLUSTER),
    "cluster": _Place("cluster", "family", _CLUSTER),
    "quorum": _Place("quorum", "family", _CLUSTER),
    "brokers": _Place("brokers", "family", _CLUSTER),
    "features": _Place("features", "family", _CLUSTER),
    "server": _Place("server", "family", _NODE),
    "storage": _Place("storage", "family", _NODE),
    "log": _Place("log_dump", "family", _NODE),
    "pipeline": _Place("pipeline", "family", _SPARK),
}
"""By name, in the order of the help."""


class _Root(TyperGroup):
    """Imports commands when they are asked for, and ends quietly when nobody reads any more."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        _leave_flags_alone(parameters)
        return parameters

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = nearest(args[0], COMMANDS) or "; `millstream --help` lists all"
            raise UsageFault(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Before typer does it its own way. Python flushes at exit and would complain then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.BROKEN_PIPE) from None
        return result


def _load(name: str) -> Any:
    place = COMMANDS[name]
    found = getattr(importlib.import_module(f"millstream.cli.{place.module}"), place.attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    _finish(command)
    command.rich_help_panel = place.panel  # type: ignore[attr-defined]  # Typer's own have it.
    return command


def _leave_flags_alone(parameters: Sequence[Any]) -> None:
    """Typer would write the type of a flag behind it."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def _finish(command: Any) -> None:
    """Give a command and those below it what all of them have."""
    for parameter in list(command.params):
        if parameter.name == "as_json" and parameter.help == PRINT_JSON:
            add_output_option(command, parameter)
    help_option = command.get_help_option(typer.Context(command, help_option_names=HELP_OPTIONS))
    _leave_flags_alone([*command.params, help_option])
    for below in getattr(command, "commands", {}).values():
        _finish(below)


app = typer.Typer(
    name=PROGRAM,
    context_settings={"help_option_names": HELP_OPTIONS},
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="An event streaming platform that speaks the Kafka protocol.",
    epilog=(
        "Brokers are found through `--bootstrap-server` or `MILLSTREAM_BOOTSTRAP_SERVER`, else on "
        "localhost:9092. `millstream --install-completion` teaches the shell to complete."
    ),
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """An event streaming platform that speaks the Kafka protocol."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    choose_format(None)
    try:
        code = app(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as error:
        # `millstream topics` alone has printed its help by now, and has no message.
        if message := one_line(error.format_message()):
            complain(f"{message} (see --help)")
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except CommandFailed as error:
        complain(one_line(str(error)))
        return error.exit_code
    except (BrokerUnreachable, OperationTimeout) as error:
        complain(unreachable_line(error))
        return ExitCode.UNREACHABLE
    except ApiError as error:
        complain(f"{one_line(str(error)).rstrip('.')} ({error.wire_name})")
        return ExitCode.FAILED
    except (MillstreamError, OSError) as error:
        complain(one_line(str(error)))
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.OK
