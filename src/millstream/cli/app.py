"""All commands in one tree, and what happens to their errors.

`main` runs it. Whatever a command raises on purpose becomes one line on stderr and an exit code;
anything else is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from millstream.cli import configs, consume, log_dump, offsets, perf, produce, topics
from millstream.cli.faults import CommandFailed, ExitCode, one_line
from millstream.cli.output import complain
from millstream.errors import ApiError, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "millstream"


class _Root(TyperGroup):
    """Turns a broken pipe into an exit code before typer does it its own way."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes at exit and would complain then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.BROKEN_PIPE) from None
        return result


app = typer.Typer(
    name=PROGRAM,
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="An event streaming platform that speaks the Kafka protocol.",
    epilog=(
        "Brokers are found through `--bootstrap-server` or `MILLSTREAM_BOOTSTRAP_SERVER`. "
        "`millstream server start` runs a node; it has its own `--help`."
    ),
)
app.add_typer(topics.family, name="topics")
app.add_typer(configs.family, name="configs")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("offsets")(offsets.offsets)
app.add_typer(log_dump.family, name="log")
app.add_typer(perf.family, name="perf")


def run(arguments: Sequence[str]) -> int:
    """Run a command line; the exit code."""
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
    except ApiError as error:
        complain(f"{one_line(str(error)).rstrip('.')} ({error.wire_name})")
        return ExitCode.FAILED
    except (MillstreamError, OSError) as error:
        complain(one_line(str(error)))
        return ExitCode.FAILED
    return code if isinstance(code, int) else ExitCode.OK
