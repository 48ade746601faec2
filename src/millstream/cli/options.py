"""Options that many commands share, once: names, help texts, namespace, completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.main

from millstream.cli.faults import UsageFault
from millstream.cli.output import FORMATS, choose_format, is_format_chosen

if TYPE_CHECKING:
    from millstream.cli.session import Session

BOOTSTRAP_VARIABLE: Final = "MILLSTREAM_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_TIMEOUT_S: Final = 30.0
_COMPLETION_TIMEOUT_S: Final = 1.0


def complete_topics(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Topic names for the shell; none if the cluster does not answer at once."""
    yield from _complete(context, incomplete, lambda session: session.topics())


def complete_groups(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Likewise, ids of groups of consumers."""
    from millstream.cli.group_view import CONSUMER_TYPES, list_groups

    yield from _complete(
        context,
        incomplete,
        lambda session: [each.group_id for each in list_groups(session, (), CONSUMER_TYPES)],
    )


def complete_share_groups(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Likewise, ids of share groups."""
    from millstream.cli.group_view import SHARE_TYPES, list_groups

    yield from _complete(
        context,
        incomplete,
        lambda session: [each.group_id for each in list_groups(session, (), SHARE_TYPES)],
    )


def complete_transactional_ids(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Likewise, transactional ids."""
    from millstream.cli.transaction_view import TransactionFilter, list_transactions

    yield from _complete(
        context,
        incomplete,
        lambda session: [
            each.transactional_id for each in list_transactions(session, TransactionFilter())
        ],
    )


def _complete(
    context: typer.Context, incomplete: str, names: Callable[[Session], Iterable[str]]
) -> Iterator[str]:
    from millstream.cli.session import open_session

    bootstrap = str(context.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP)
    namespace = context.params.get("namespace")
    # A shell that completes must never show an error instead.
    with (
        suppress(Exception),
        open_session(bootstrap, _COMPLETION_TIMEOUT_S, namespace) as session,
    ):
        yield from (each for each in names(session) if each.startswith(incomplete))


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        envvar=BOOTSTRAP_VARIABLE,
        help="Brokers to ask first; one that answers is enough.",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to try before giving up.")
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Of this namespace: NAME.topic."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
PRINT_JSON: Final = "Print JSON."
OUTPUT_HELP: Final = "Print for programs, in this format."
AsJson = Annotated[bool, typer.Option("--json", help=PRINT_JSON)]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated."),
]


def _choose_output(value: str | None) -> str | None:
    if value is not None and value not in FORMATS:
        raise UsageFault(f"--output {value}: must be {', '.join(FORMATS)}")
    choose_format(value)
    return value


def _with_output(
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="|".join(FORMATS),
            help=OUTPUT_HELP,
            callback=_choose_output,
            is_eager=True,
        ),
    ] = None,
) -> None:
    """Has the option that `add_output_option` gives to others."""


def add_output_option(command: Any, as_json: Any) -> None:
    """Let a command that has `--json` print its document in another format as well."""
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_with_output)
    (option,) = typer.main.get_command(carrier).params
    option.expose_value = False
    command.params.append(option)
    as_json.callback = lambda _context, _parameter, value: value or is_format_chosen()


def require_ids(given: str | list[str] | None) -> str | list[str] | None:
    """Refuse an id of no characters, which is an unset variable of a script more than a group."""
    ids = [given] if isinstance(given, str) else given or []
    if "" in ids:
        raise UsageFault("an id is empty; say which one is meant")
    return given


def new_family(summary: str) -> typer.Typer:
    """A group of commands, such as `topics`."""
    return typer.Typer(
        help=summary, no_args_is_help=True, rich_markup_mode="markdown", add_completion=False
    )
