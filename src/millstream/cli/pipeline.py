"""`millstream pipeline`: define a pipeline on Spark, check it, draw it, run it, stop it.

Only `run` and `validate --deep` need Spark, and only they import it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, ExitCode, UsageFault
from millstream.cli.options import AsJson, new_family
from millstream.cli.output import complain, note, show_facts, show_json, show_rows
from millstream.cli.settings import parse_pairs
from millstream.cli.times import TIME_SYNTAX, parse_time, show_time
from millstream.clock import SystemClock
from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.definition import Pipeline
from millstream.spark.pipelines.schema import Fault
from millstream.spark.pipelines.state_directory import ENDS_OF_RUNS, StateDirectory
from millstream.spark.pipelines.supervision import ENDS_OF_QUERIES

family = new_family(
    "Pipelines on Spark: topics, files and tables in, topics, files and tables out."
)

NOT_RUNNING: Final = 3
"""The exit code of `status` if nothing runs, as that of `server status`."""
_END_S: Final = 60.0
"""What the end of Spark itself may take, once batches are done or cut off."""
_LOOK_S: Final = 0.1
_DIED: Final = "died"
_HEADINGS: Final = {
    "query": "QUERY",
    "state": "STATE",
    "rows": "ROWS",
    "batches": "BATCHES",
    "per_second": "ROWS/S",
    "lag": "LAG",
    "restarts": "RESTARTS",
    "error": "LAST ERROR",
}

Definition = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="A definition, or a directory that has a `pipeline.yaml`."),
]
Storage = Annotated[
    Path | None,
    typer.Option("--storage", metavar="DIR", help="Another state directory than the definition's."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark cluster; else as defined, `local[*]`."),
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]


class Picture(Enum):
    """How a graph is printed."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


@family.callback()
def pipeline() -> None:
    """Pipelines on Spark."""


@family.command("init")
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to; it is created if it is absent.")
    ],
    template: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A ready-made pipeline instead: files-to-topic, postgres-to-topic, "
            "topic-to-postgres, topic-to-delta, topic-to-iceberg, topic-to-parquet.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an example with comments: a definition, its functions, and data to begin with.

    Example: `millstream pipeline init orders && millstream pipeline run orders --available-now`
    """
    from millstream.spark.pipelines.example import write_example

    written = write_example(directory, template)
    if as_json:
        show_json({"directory": str(directory), "files": written})
        return
    for each in written:
        typer.echo(f"{directory / each}: written")
    typer.echo(
        f"Start a broker (millstream server start), then: "
        f"millstream pipeline run {directory} --available-now"
    )


@family.command("validate")
def validate(
    path: Definition = Path(),
    deep: Annotated[
        bool, typer.Option("--deep", help="Let Spark analyse every view as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say everything that is wrong with a definition, each with its place in the file.

    It asks no broker, and without `--deep` it needs no Spark. Exit code 1 if something is wrong.

    Examples: `millstream pipeline validate orders`, `millstream pipeline validate orders --deep`
    """
    faults: list[Fault] = []
    defined: Pipeline | None = None
    try:
        defined = _load(path)
        if deep:
            faults = _deep_faults(defined)
    except InvalidPipeline as error:
        faults = [each for each in error.faults if isinstance(each, Fault)]
        if not faults:
            raise
    if as_json:
        show_json({"valid": not faults, "faults": [_fault_facts(each) for each in faults]})
    else:
        for each in faults:
            complain(str(each))
    if faults or defined is None:
        raise typer.Exit(ExitCode.FAILED)
    note(f"{defined.name}: {_outline(defined)}; nothing is wrong", as_json=as_json)


def _outline(defined: Pipeline) -> str:
    from millstream.cli.output import counted

    parts = (("source", defined.sources), ("view", defined.views), ("sink", defined.sinks))
    return ", ".join(counted(len(each), noun) for noun, each in parts)


def _fault_facts(fault: Fault) -> dict[str, Any]:
    return {
        "file": fault.place.file,
        "line": fault.place.line,
        "column": fault.place.column,
        "problem": fault.problem,
    }


def _deep_faults(defined: Pipeline) -> list[Fault]:
    from millstream.cli.pipeline_run import spark_session, tell_start
    from millstream.spark.pipelines.assembly import Assembly

    # What Spark logs meanwhile concerns nobody, and nothing is to be left behind: no compiled
    # libraries, and no columns, which later runs would take over.
    looked_at = {name: each.looked_at() for name, each in defined.sources.items()}
    tell_start()
    with (
        _no_compiled_files(),
        tempfile.TemporaryDirectory() as directory,
        spark_session(
            dataclasses.replace(defined, storage=directory),
            "local[1]",
            {"spark.sql.warehouse.dir": f"{directory}/warehouse"},
        ) as spark,
    ):
        return Assembly(dataclasses.replace(defined, sources=looked_at), spark).faults()


@contextmanager
def _no_compiled_files() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@family.command("graph")
def graph(
    path: Definition = Path(),
    picture: Annotated[
        Picture, typer.Option("--format", help="As a tree, for Mermaid, or for Graphviz.")
    ] = Picture.TEXT,
    as_json: AsJson = False,
) -> None:
    """Draw what is made from what.

    Examples: `millstream pipeline graph orders`,
    `millstream pipeline graph orders --format dot | dot -Tsvg > orders.svg`
    """
    from millstream.spark.pipelines.graph import as_data, as_dot, as_mermaid, as_text, graph_of

    if as_json:
        show_json(as_data(graph_of(_load(path))))
        return
    draw = {Picture.TEXT: as_text, Picture.MERMAID: as_mermaid, Picture.DOT: as_dot}[picture]
    typer.echo(draw(graph_of(_load(path))))


@family.command("run")
def run(
    path: Definition = Path(),
    master: Master = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when all is done that is there now.")
    ] = False,
    storage: Storage = None,
    settings: SparkSettings = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help=f"Begin the first run there, in all topics that are read: {TIME_SYNTAX}.",
        ),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Go on from checkpoints though the definition reads or writes something else now.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each batch and change.")
    ] = False,
) -> None:
    """Run a pipeline, and go on where it ended the last time.

    It runs until Ctrl-C, SIGTERM or `millstream pipeline stop`; each ends it when its batches are
    done, or when they took longer than `stop_timeout` of the definition; a second Ctrl-C at once.
    What Spark logs is in `spark.log` of the state directory.

    Examples: `millstream pipeline run orders`, `millstream pipeline run orders --available-now`,
    `millstream pipeline run orders --from-time 2h --storage since-noon`,
    `millstream pipeline run orders --master spark://host:7077 --conf spark.executor.memory=4g`
    """
    from millstream.cli.pipeline_run import run_pipeline

    defined = _load(path, storage)
    if from_time is not None:
        defined = defined.starting_at(parse_time(from_time, SystemClock().wall_ms()))
    run_pipeline(
        defined,
        master=master,
        settings=parse_pairs(settings),
        available_now=available_now,
        accepts_changes=accept_changes,
        as_json=as_json,
    )


@family.command("status")
def status(path: Definition = Path(), storage: Storage = None, as_json: AsJson = False) -> None:
    """Say how a pipeline is, or how it ended; exit code 3 if it does not run.

    Example: `millstream pipeline status orders`
    """
    directory = _directory(path, storage)
    told = directory.read_status()
    if told is None:
        complain(f"no pipeline ever ran in {directory.path}")
        raise typer.Exit(NOT_RUNNING)
    is_running = directory.is_running
    if not is_running:
        told = _after_death(told)
    if as_json:
        show_json({**told, "is_running": is_running})
    else:
        _show_status(told, is_running=is_running)
    if not is_running:
        raise typer.Exit(NOT_RUNNING)


def _after_death(told: dict[str, Any]) -> dict[str, Any]:
    """The status that a process left; what it did last was no end if it was killed."""
    if told["state"] in ENDS_OF_RUNS:
        return told
    queries = [
        each if each["state"] in ENDS_OF_QUERIES else {**each, "state": _DIED}
        for each in told["queries"]
    ]
    return {**told, "state": _DIED, "queries": queries}


def _show_status(told: dict[str, Any], *, is_running: bool) -> None:
    facts = {
        "pipeline": told["pipeline"],
        "state": told["state"],
        "process": f"{told['pid']} on {told['host']}" if is_running else None,
        "mode": told["mode"],
        "master": told["master"],
        "started": show_time(told["started_ms"]),
        "updated": show_time(told["updated_ms"]),
        "error": told["error"],
    }
    show_facts({name: each for name, each in facts.items() if each is not None}, as_json=False)
    typer.echo()
    rows = []
    for each in told["queries"]:
        last = each["last"] or {}
        rows.append(
            {**each, "per_second": last.get("processed_per_second"), "lag": last.get("lag")}
        )
    show_rows(rows, _HEADINGS, as_json=False)


@family.command("stop")
def stop(
    path: Definition = Path(),
    storage: Storage = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long to wait for it; else the pipeline's `stop_timeout` and a minute more.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Then end it at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a pipeline that runs, when its batches are done, and wait until it has.

    Batches that take longer than `stop_timeout` of the definition are stopped in the middle.

    Examples: `millstream pipeline stop orders`,
    `millstream pipeline stop orders --timeout 30 --force`
    """
    directory = _directory(path, storage)
    if not directory.is_running:
        raise CommandFailed(f"no pipeline runs in {directory.path}")
    directory.request_stop()
    told = directory.read_status() or {}
    patience_s = told.get("stop_timeout", 0.0) + _END_S if timeout is None else timeout
    if not _has_ended(directory, patience_s):
        if not force:
            raise CommandFailed(
                f"it has not stopped in {patience_s:g} s; wait for it, or end it with --force"
            )
        _kill(directory)
    told = directory.read_status() or {}
    if as_json:
        show_json({"stopped": True, "state": told.get("state")})
    else:
        typer.echo("stopped")


def _has_ended(directory: StateDirectory, timeout_s: float) -> bool:
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + timeout_s * 1000
    while directory.is_running:
        if clock.monotonic_ms() >= deadline_ms:
            return False
        time.sleep(_LOOK_S)
    return True


def _kill(directory: StateDirectory) -> None:
    owner = directory.owner()
    if owner is None:
        return
    if owner.host != os.uname().nodename:
        raise CommandFailed(f"it runs on {owner.host}; end process {owner.pid} there")
    with suppress(ProcessLookupError):
        os.kill(owner.pid, signal.SIGKILL)
    _has_ended(directory, _END_S)


def _directory(path: Path, storage: Path | None) -> StateDirectory:
    return StateDirectory(storage if storage is not None else _load(path).storage)


def _load(path: Path, storage: Path | None = None) -> Pipeline:
    from millstream.spark.pipelines.loading import load

    if not path.exists():
        raise UsageFault(f"there is no {path}; `millstream pipeline init {path}` writes an example")
    return load(path, storage=None if storage is None else str(storage.absolute()))
