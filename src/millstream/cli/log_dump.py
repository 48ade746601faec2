"""`millstream log`: the files of a log, shown and verified. A broker may be running on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.consume import EncodingOption
from millstream.cli.faults import CommandFailed, ExitCode
from millstream.cli.log_check import check_file
from millstream.cli.log_entries import COLUMNS, entries
from millstream.cli.log_files import FileKind, LogFile, find_files
from millstream.cli.message_text import compact
from millstream.cli.options import new_family
from millstream.cli.output import complain, counted, show_json_line, show_long_table
from millstream.cli.record_format import Encoding
from millstream.cli.times import show_time
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.cli.log_check import Finding
    from millstream.cli.output import Row

family = new_family("Look into the files of a log.")

_HIDDEN: Final = frozenset({"offset", "timestamp", "record", "control", "fields"})


@family.callback()
def log() -> None:
    """Look into the files of a log."""


@family.command("dump")
def dump(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH", help="Files, or directories: of a partition or of all of a node."
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of each batch as well.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Instead of showing them, check checksums, offsets, records and indexes.",
        ),
    ] = False,
    encoding: EncodingOption = Encoding.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object on each line.")] = False,
) -> None:
    """Show what is in segments, indexes, snapshots and checkpoints.

    Records of the metadata log and of coordinators are decoded. Nothing is changed.

    Examples: `millstream log dump millstream-data/orders-0 --records`,
    `millstream log dump millstream-data --verify`,
    `millstream log dump millstream-data/__cluster_metadata-0 --records --json`
    """
    files = find_files(paths)
    if verify:
        _verify(files, as_json=as_json)
        return
    is_damaged = False
    for index, file in enumerate(files):
        if not as_json:
            _show_title(file, is_first=index == 0)
        try:
            _show(file, with_records=records, encoding=encoding, as_json=as_json)
        except MillstreamError as error:
            complain(str(error) if file.path in str(error) else f"{file.path}: {error}")
            is_damaged = True
    if is_damaged:
        raise typer.Exit(ExitCode.FAILED)


def _show(file: LogFile, *, with_records: bool, encoding: Encoding, as_json: bool) -> None:
    rows = entries(file, with_records=with_records, encoding=encoding)
    if as_json:
        for row in rows:
            show_json_line({"file": file.path, "kind": file.kind.name.lower(), **row})
        return
    is_segment = file.kind is FileKind.METADATA_SNAPSHOT
    columns = COLUMNS[FileKind.SEGMENT if is_segment else file.kind]
    show_long_table(rows, columns, _record_lines)


def _record_lines(row: Row) -> Iterator[str]:
    for record in row.get("records", ()):
        time = show_time(record.get("timestamp", -1)) or "-"
        yield f"    {record['offset']}  {time}  {_said(record)}"


def _said(record: dict[str, Any]) -> str:
    name = record.get("record", record.get("control", ""))
    fields = {
        key: value
        for key, value in record.items()
        if key not in _HIDDEN and not (key == "headers" and not value)
    }
    return f"{name} {compact(record.get('fields', {}) | fields)}".strip()


def _show_title(file: LogFile, *, is_first: bool) -> None:
    if not is_first:
        typer.echo()
    title = typer.style(file.path, bold=True)
    typer.echo(f"{title}  {file.kind.value}, {counted(file.size, 'byte')}")


def _verify(files: list[LogFile], *, as_json: bool) -> None:
    problem_count = 0
    for file in files:
        finding = check_file(file)
        problem_count += finding.problem is not None
        if as_json:
            show_json_line(
                {
                    "file": file.path,
                    "kind": file.kind.name.lower(),
                    "content": finding.summary,
                    "problem": finding.problem,
                }
            )
        else:
            _show_finding(finding)
    if problem_count:
        raise CommandFailed(
            f"{counted(problem_count, 'file')} of {len(files)} damaged; a broker rebuilds indexes "
            "and snapshots of producers by itself, and cuts a segment at its first bad batch"
        )
    if not as_json:
        typer.echo(f"all good: {counted(len(files), 'file')}")


def _show_finding(finding: Finding) -> None:
    if finding.problem is None:
        typer.echo(f"{typer.style('good', fg='green')}  {finding.file.path}  {finding.summary}")
        return
    typer.echo(
        f"{typer.style('BAD', fg='red', bold=True)}   {finding.file.path}  {finding.summary}"
    )
    typer.echo(f"      {finding.problem}")
