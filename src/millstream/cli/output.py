"""How commands print: tables for people, aligned columns for pipes, JSON for programs.

Rich is imported only for a terminal. Nothing here decides what is printed.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Row: TypeAlias = "Mapping[str, Any]"
"""By JSON key; a missing key is an empty cell."""

_ROWS_AT_ONCE: Final = 200
_YAML_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_YAML_WORDS: Final = frozenset(
    f(word)
    for word in ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    for f in (str, str.capitalize, str.upper)
)
"""Words that YAML takes for something other than text."""


class _Chosen:
    """The format that `--output` asked for: a command has one for all that it prints."""

    format: str | None = None


def choose_format(name: str | None) -> None:
    """Print for programs in one of `FORMATS`; None leaves it to `--json`."""
    _Chosen.format = name


def is_format_chosen() -> bool:
    """Whether `--output` was given."""
    return _Chosen.format is not None


def show_json(value: object) -> None:
    """One document for programs: JSON, unless another format was chosen."""
    typer.echo(FORMATS[_Chosen.format or "json"](value))


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _as_yaml(value: object) -> str:
    return "\n".join(_yaml_lines(value))


def _yaml_lines(value: object) -> Iterator[str]:
    """Blocks of lists and mappings; what is inside them is JSON, which is YAML."""
    match value:
        case dict() if value:
            for key, each in value.items():
                yield from _yaml_item(f"{_yaml_scalar(key)}:", each)
        case list() | tuple() if value:
            for each in value:
                yield from _yaml_item("-", each)
        case _:
            yield json.dumps(value, ensure_ascii=False)


def _yaml_item(lead: str, value: object) -> Iterator[str]:
    if not isinstance(value, dict | list | tuple) or not value:
        yield f"{lead} {_yaml_scalar(value)}"
        return
    lines = list(_yaml_lines(value))
    if lead == "-":
        yield f"- {lines.pop(0)}"
    else:
        yield lead
    yield from (f"  {line}" for line in lines)


def _yaml_scalar(value: object) -> str:
    if isinstance(value, str) and _YAML_PLAIN.fullmatch(value) and value not in _YAML_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _as_csv(value: object) -> str:
    """A row for each item; what is nested stands in its cell as JSON."""
    items = value if isinstance(value, list | tuple) else [value]
    rows: list[Row] = [each if isinstance(each, dict) else {"value": each} for each in items]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_cell(each) for key, each in row.items()})
    return text.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return json.dumps(value, ensure_ascii=False)


FORMATS: Final[Mapping[str, Callable[[object], str]]] = {
    "json": _as_json,
    "yaml": _as_yaml,
    "csv": _as_csv,
}
"""How documents are printed for programs."""


def show_json_line(value: object) -> None:
    """One JSON document on a line, of many."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def show_rows(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool) -> None:
    """A list of rows; `columns` maps keys to headings, JSON has all the keys."""
    if as_json:
        show_json(rows)
    elif sys.stdout.isatty():
        _show_rich_table(rows, columns)
    else:
        _show_plain_table(rows, columns)


def show_long_table(
    rows: Iterable[Row],
    columns: Mapping[str, str],
    below: Callable[[Row], Iterable[str]] = lambda row: (),
) -> None:
    """A table that may be too long for memory, for people; `below` has lines for under a row.

    Columns are as wide as the rows so far need.
    """
    widths = [len(heading) for heading in columns.values()]
    is_first = True
    for some in _chunks(rows):
        lines = _cells(some, columns)
        if not lines:
            continue
        widths = [
            max(width, *map(len, cells)) for width, *cells in zip(widths, *lines, strict=True)
        ]
        if is_first:
            typer.echo(_padded(list(columns.values()), widths))
            is_first = False
        for row, line in zip(some, lines, strict=True):
            typer.echo(_padded(line, widths))
            for extra in below(row):
                typer.echo(extra)


def show_facts(facts: Row, *, as_json: bool) -> None:
    """Names and values, one under the other."""
    if as_json:
        show_json(facts)
        return
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' ') + ':':<{width}}{_text(value)}")


def note(text: str, *, as_json: bool) -> None:
    """A sentence for people, which programs are spared."""
    if not as_json:
        typer.echo(text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def complain(text: str) -> None:
    """A line on stderr."""
    typer.echo(f"millstream: {text}", err=True)


def require_consent(question: str, *, is_given: bool) -> None:
    """Ask before something is lost for good, if somebody is there to answer."""
    if not is_given and sys.stdin.isatty() and not is_confirmed(question):
        raise CommandFailed("nothing was done")


def is_confirmed(question: str) -> bool:
    """Ask on stderr, read the answer from stdin; only yes is yes."""
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        typer.echo("", err=True)
        raise UsageFault("nobody is there to answer; --yes does it without a question")
    return answer.strip().lower() in ("y", "yes")


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(_text(each) for each in value) or "-"
        case _:
            return str(value)


def _cells(rows: Sequence[Row], columns: Mapping[str, str]) -> list[list[str]]:
    return [[_text(row.get(key)) for key in columns] for row in rows]


def _show_plain_table(rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    lines = [list(columns.values()), *_cells(rows, columns)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        typer.echo(_padded(line, widths))


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Some rows at a time; those before a fault come before it is raised."""
    chunk: list[Row] = []
    try:
        for row in rows:
            chunk.append(row)
            if len(chunk) == _ROWS_AT_ONCE:
                yield chunk
                chunk = []
    except MillstreamError:
        yield chunk
        raise
    yield chunk


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
    return "  ".join(padded).rstrip()


def _show_rich_table(rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for line in _cells(rows, columns):
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)
