"""`millstream pipeline run` from its session to its end: signals, and progress as it happens.

People see a table that changes, or plain lines where there is no terminal; programs lines of JSON.
What the JVM writes goes to a file, so that it is in nobody's way.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from millstream.cli.output import show_json_line
from millstream.cli.pipeline_view import LiveTable, PlainLines
from millstream.clock import SystemClock
from millstream.spark.pipelines.runner import RunResult, StopSwitch, run
from millstream.spark.pipelines.state_directory import StateDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from millstream.spark.pipelines.definition import Pipeline
    from millstream.spark.pipelines.progress import BatchProgress
    from millstream.spark.pipelines.runner import Watcher
    from millstream.spark.pipelines.supervision import QuerySupervisor

_LOG: Final = "spark.log"
_DEFAULT_MASTER: Final = "local[*]"


class JsonLines:
    """A line for each batch and each change."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """A batch."""
        show_json_line({"event": "progress", **self._about(query), **batch.facts()})

    def changed(self, query: QuerySupervisor) -> None:
        """A change."""
        show_json_line({"event": "state", **self._about(query), "error": query.error})

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """Nothing: lines are for what happens."""

    def _about(self, query: QuerySupervisor) -> dict[str, Any]:
        return {
            "query": query.name,
            "state": query.state.value,
            "restarts": query.restarts,
            "time_ms": self._clock.wall_ms(),
        }


def run_pipeline(
    pipeline: Pipeline,
    *,
    master: str | None,
    settings: Mapping[str, str],
    available_now: bool,
    accepts_changes: bool,
    as_json: bool,
) -> None:
    """Run it and say how it went."""
    StateDirectory(pipeline.storage).require_free()  # Said before Spark takes its time to start.
    stop = StopSwitch()
    if not as_json:
        tell_start()
    with (
        spark_session(pipeline, master, settings, is_quiet=as_json) as spark,
        stopped_by_signals(stop),
        _watcher(pipeline, as_json=as_json) as watcher,
    ):
        result = run(
            pipeline,
            spark,
            available_now=available_now,
            accepts_changes=accepts_changes,
            watcher=watcher,
            stop=stop,
        )
    _show_end(pipeline, result, as_json=as_json)


def _show_end(pipeline: Pipeline, result: RunResult, *, as_json: bool) -> None:
    how = "stopped" if result.is_stopped else "finished"
    if as_json:
        show_json_line({"event": "end", "state": how, "rows": dict(result.rows)})
    else:
        # Queries that share a source take in the same rows: a sum would count them twice.
        rows = ", ".join(f"{name} {count:,}" for name, count in result.rows.items())
        typer.echo(f"{pipeline.name}: {how}; rows taken in: {rows}")


def tell_start() -> None:
    """Say why nothing is to be seen for some seconds."""
    typer.echo("starting Spark", err=True)


@contextmanager
def _watcher(pipeline: Pipeline, *, as_json: bool) -> Iterator[Watcher]:
    if as_json:
        yield JsonLines()
    elif sys.stderr.isatty():
        with LiveTable(pipeline.name) as table:
            yield table
    else:
        yield PlainLines()


@contextmanager
def spark_session(
    pipeline: Pipeline,
    master: str | None,
    settings: Mapping[str, str],
    *,
    is_quiet: bool = False,
) -> Iterator[SparkSession]:
    """A session for a pipeline, whose JVM logs to a file of the state directory."""
    from millstream.spark.sessions import logged_session

    log = Path(pipeline.storage) / _LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    spark = logged_session(
        f"millstream pipeline {pipeline.name}",
        master or pipeline.master or _DEFAULT_MASTER,
        {**pipeline.configuration, **settings},
        log,
        logs_stdout=is_quiet,
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stopped_by_signals(stop: StopSwitch) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for the end. PySpark has handlers of its own: this comes after."""
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda *_: stop.request())
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(TypeError):
                signal.signal(number, handler)
