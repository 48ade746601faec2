"""The reference page of all commands, as Markdown, from the commands themselves.

A test keeps the committed page, docs/reference/cli.md, current.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import typer.main

from millstream.cli.app import PROGRAM, app
from millstream.cli.faults import ExitCode
from millstream.cli.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    OUTPUT_HELP,
    AsJson,
    Bootstrap,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _help_of(option: Any) -> str:
    """What an annotated option says about itself."""
    return str(option.__metadata__[0].help)


_SHARED: Final = {
    "--bootstrap-server": _help_of(Bootstrap),
    "--timeout": _help_of(Timeout),
    "--json": _help_of(AsJson),
    "--output": OUTPUT_HELP,
}
"""Options that are explained once; one of the same name and another meaning is not meant."""
_MEANINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "the cluster refused, or a file could not be used; stderr says why",
    ExitCode.USAGE: "the command line is wrong; nothing was done",
    ExitCode.UNREACHABLE: "no broker answered in time; `server status`: no server runs",
    ExitCode.INTERRUPTED: "Ctrl-C",
    ExitCode.BROKEN_PIPE: "whoever read the output stopped reading, as `head` does",
}

_INTRODUCTION: Final = f"""\
# Commands

This page is made from the commands themselves; `--help` or `-h` behind any of them shows the same.

```console
$ {PROGRAM} server start --data /tmp/millstream &
millstream is ready: localhost:9092
$ {PROGRAM} topics create orders --partitions 3
orders: created
$ printf 'anna:2 pears\\nben:1 apple\\n' | {PROGRAM} produce orders --key-separator :
orders: 2 records
$ {PROGRAM} consume orders --format '%p@%o %k bought %s\\n'
1@0 anna bought 2 pears
1@1 ben bought 1 apple
$ {PROGRAM} server stop --data /tmp/millstream
stopping process 4711 on /tmp/millstream
stopped
```

## What all commands share

- `--bootstrap-server HOST:PORT,…` (`-b`): brokers to ask first, one that answers is enough. Else
  the variable `{BOOTSTRAP_VARIABLE}`, else `{DEFAULT_BOOTSTRAP}`.
- `--timeout SECONDS`: how long to try before giving up.
- `--json`: output for programs, on stdout. Sentences for people and errors go to stderr or are left
  out. `--output yaml` and `--output csv` (`-o`) print the same in those formats.
- An error is one line on stderr that says what to do.
- `{PROGRAM} --install-completion` teaches your shell to complete commands, options, and names
  of topics, groups and transactions.
- They work against Apache Kafka as well.

| exit code | meaning |
|---|---|
"""


def render_commands() -> str:
    """The whole page."""
    codes = [f"| {int(code)} | {meaning} |" for code, meaning in _MEANINGS.items()]
    sections = [_INTRODUCTION + "\n".join(codes) + "\n"]
    root: Any = typer.main.get_command(app)
    for name in root.list_commands(None):
        sections += _sections(f"{PROGRAM} {name}", root.get_command(None, name), level=2)
    return "\n".join(sections)


def _sections(path: str, command: Any, level: int) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield "\n".join(_command(path, command, level))
        return
    yield f"{'#' * level} {path}\n\n{command.help}\n"
    for name, subcommand in subcommands.items():
        yield from _sections(f"{path} {name}", subcommand, level + 1)


def _command(path: str, command: Any, level: int) -> Iterator[str]:
    text, examples = split_examples(command.help or "")
    parameters = [each for each in command.params if "--help" not in each.opts]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    usage = "".join(f" {_argument(each)}" for each in arguments)
    yield f"{'#' * level} {path}"
    yield f"\n`{path} [OPTIONS]{usage}`"
    yield f"\n{text}\n"
    if examples:
        yield "\n".join(["```sh", *examples, "```", ""])
    rows = [_row(each) for each in parameters if not _is_shared(each)]
    shared = [f"`{each.opts[0]}`" for each in parameters if _is_shared(each)]
    if rows:
        yield "\n".join(["| option | |", "|---|---|", *rows, ""])
    if shared:
        yield f"{'And' if rows else 'Options:'} {', '.join(shared)}.\n"


def split_examples(text: str) -> tuple[str, list[str]]:
    """A command's help without its examples, and these."""
    said, _, examples = text.partition("\n\nExample")
    return said, re.findall(r"`([^`]+)`", examples)


def _is_shared(parameter: Any) -> bool:
    return parameter.opts[0] in _SHARED and bool(_SHARED[parameter.opts[0]] == parameter.help)


def _argument(parameter: Any) -> str:
    shown = parameter.metavar or parameter.name.upper()
    if parameter.nargs != 1:
        shown += "…"
    return shown if parameter.required else f"[{shown}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _cells(f"`{_argument(parameter)}`", parameter.help or "")
    names = [f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts)]
    value = "" if parameter.is_flag else f" `{_value(parameter)}`"
    return _cells(", ".join(names) + value, (parameter.help or "") + _default(parameter))


def _value(parameter: Any) -> str:
    default = parameter.default
    if isinstance(default, Enum):
        return "|".join(str(each.value) for each in type(default))
    return str(parameter.metavar or "N")


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.is_flag or default is None or not parameter.show_default:
        return ""
    return f" Default: `{default.value if isinstance(default, Enum) else default}`."


def _cells(*cells: str) -> str:
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"
