"""How commands print: tables for people, aligned columns for pipes, JSON for programs.

Rich is imported only for a terminal. Nothing here decides what is printed.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Row: TypeAlias = "Mapping[str, Any]"
"""By JSON key; a missing key is an empty cell."""


def show_json(value: object) -> None:
    """One JSON document."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show_rows(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool) -> None:
    """A list of rows; `columns` maps keys to headings, JSON has all the keys."""
    if as_json:
        show_json(rows)
    elif sys.stdout.isatty():
        _show_rich_table(rows, columns)
    else:
        _show_plain_table(rows, columns)


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


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def complain(text: str) -> None:
    """A line on stderr."""
    typer.echo(f"millstream: {text}", err=True)


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
        padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(padded).rstrip())


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
