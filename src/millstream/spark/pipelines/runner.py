"""Runs a pipeline: starts its queries in one session, watches them, starts again what fails.

The command `run` and programs call `run`. A run ends when all available data is done, when somebody
asks for it, or when a query failed too often; what was done is in the checkpoints, and the next
run goes on from there.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.clock import SystemClock
from millstream.errors import PipelineFailed
from millstream.spark.pipelines.assembly import Assembly
from millstream.spark.pipelines.checkpoints import CheckpointFiles, check_checkpoints
from millstream.spark.pipelines.graph import stages
from millstream.spark.pipelines.group_offsets import OffsetsOfQuery, topics_of
from millstream.spark.pipelines.queries import RunningQuery
from millstream.spark.pipelines.sinks import Trigger
from millstream.spark.pipelines.state_directory import StateDirectory
from millstream.spark.pipelines.supervision import QueryState, QuerySupervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from millstream.clock import Clock
    from millstream.spark.pipelines.assembly import Flow
    from millstream.spark.pipelines.definition import Pipeline
    from millstream.spark.pipelines.progress import BatchProgress

_logger: Final = logging.getLogger(__name__)
# There is nothing to wait for instead: Spark tells nobody of its progress in time, and the request
# to stop may be a file. An event that a signal sets may be locked by the very thread it interrupts.
_LOOK_S: Final = 0.1
_STATUS_MS: Final = 1_000


class Watcher(Protocol):
    """Is told how a run goes."""

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """A batch of a query is done."""

    def changed(self, query: QuerySupervisor) -> None:
        """A query started, failed or ended."""

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """All queries were looked at, some times a second."""


class SilentWatcher:
    """Tells nobody."""

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """Nothing."""

    def changed(self, query: QuerySupervisor) -> None:
        """Nothing."""

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """Nothing."""


@dataclass(slots=True)
class StopSwitch:
    """Anybody may ask for the end: a signal, another thread. Twice means at once."""

    requests: int = 0

    def request(self) -> None:
        """Ask once more."""
        self.requests += 1


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended."""

    is_stopped: bool
    """Somebody asked for it, so more may be there to do."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows each query took in."""


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    available_now: bool = False,
    accepts_changes: bool = False,
    watcher: Watcher | None = None,
    stop: StopSwitch | None = None,
    clock: Clock | None = None,
) -> RunResult:
    """Run a pipeline until it ends; `PipelineFailed` says which query failed too often, and why.

    With `available_now` it ends when all is done that is there now. Only one process at a time
    may run a pipeline with the same storage. `CheckpointMismatch` says at the start that a query
    would go on where another definition ended, unless `accepts_changes`, or lose rows.
    """
    directory = StateDirectory(pipeline.storage, pipeline.checkpoints)
    with directory.held():
        runner = Runner(
            pipeline,
            lambda: _checked_flows(pipeline, spark, accepts_changes=accepts_changes),
            directory,
            available_now=available_now,
            watcher=watcher or SilentWatcher(),
            stop=stop or StopSwitch(),
            clock=clock or SystemClock(),
            master=str(spark.conf.get("spark.master", "")),
        )
        return runner.run()


def _checked_flows(
    pipeline: Pipeline, spark: SparkSession, *, accepts_changes: bool
) -> Mapping[str, Flow]:
    """Every query, if it may go on from its checkpoint."""
    flows = Assembly(pipeline, spark).flows()
    if hasattr(spark, "_jvm"):  # A session of Spark Connect cannot see the server's files.
        files = CheckpointFiles(spark)
        check_checkpoints(pipeline, flows, files, accepts_changes=accepts_changes)
    return flows


class Runner:
    """One run of one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        assemble: Callable[[], Mapping[str, Flow]],
        directory: StateDirectory,
        *,
        available_now: bool,
        watcher: Watcher,
        stop: StopSwitch,
        clock: Clock,
        master: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pipeline = pipeline
        self._assemble = assemble
        self._flows: Mapping[str, Flow] = {}
        self._directory = directory
        self._available_now = available_now
        self._watcher = watcher
        self._stop = stop
        self._clock = clock
        self._sleep = sleep
        self._queries: dict[str, RunningQuery] = {}
        self._offsets: dict[str, OffsetsOfQuery] = {}
        self.supervisors: dict[str, QuerySupervisor] = {}
        self._status_due_ms = 0
        self._is_status_written = True
        self._about = {
            "pipeline": pipeline.name,
            "definition": str(pipeline.file or ""),
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "master": master,
            "mode": "available-now" if available_now else "continuous",
            "started_ms": clock.wall_ms(),
            "stop_timeout": pipeline.stop_timeout,
        }

    def run(self) -> RunResult:
        """Until the end."""
        try:
            for stage in self._assembled_stages():
                self._run_stage(stage)
                if self._is_stopping or self._failed():
                    break
            self._write_status("stopping" if self._is_stopping else "ending")
            is_urgent = self._failed() is not None or self._stop.requests > 1
            self._end_all(0.0 if is_urgent else self._pipeline.stop_timeout)
        except BaseException as error:
            with suppress(Exception):  # Spark may be gone. What matters is why the run ends.
                self._end_all(0.0)
            self._write_status("failed", str(error) or type(error).__name__)
            raise
        return self._result()

    def _result(self) -> RunResult:
        failed = self._failed()
        if failed is not None:
            message = f"query {failed.name} of {self._pipeline.name} failed: {failed.error}"
            self._write_status("failed", message)
            raise PipelineFailed(message)
        self._write_status("stopped" if self._is_stopping else "finished")
        rows = {name: each.rows for name, each in self.supervisors.items()}
        return RunResult(self._is_stopping, rows)

    # Stages.

    def _assembled_stages(self) -> list[list[str]]:
        """The names of queries that run together, once all are made."""
        self._write_status("starting")
        self._flows = self._assemble()
        restart = self._pipeline.restart
        self.supervisors = {name: QuerySupervisor(name, restart) for name in self._flows}
        # Without an end there is no waiting for the end of others.
        return stages(self._pipeline) if self._available_now else [list(self._flows)]

    def _run_stage(self, names: list[str]) -> None:
        for name in names:
            if not self._is_stopping:  # A start may take as long as a broker that is down.
                self._start(name)
        self._write_status("running")
        while not self._is_stopping:
            for name in names:
                self._look_at(name)
            self._watcher.looked(self.supervisors)
            if self._failed() or all(self.supervisors[name].has_ended for name in names):
                return
            if self._clock.monotonic_ms() >= self._status_due_ms:
                self._write_status("running")
            self._sleep(_LOOK_S)

    @property
    def _is_stopping(self) -> bool:
        return self._stop.requests > 0 or self._directory.is_stop_requested

    def _failed(self) -> QuerySupervisor | None:
        for each in self.supervisors.values():
            if each.state is QueryState.FAILED:
                return each
        return None

    # One query.

    def _start(self, name: str) -> None:
        flow, supervisor = self._flows[name], self.supervisors[name]
        trigger = Trigger(flow.sink.trigger, self._available_now)
        query_name = f"{self._pipeline.name}.{name}"
        supervisor.started(self._clock.monotonic_ms())
        try:
            started = flow.sink.start(
                flow.frame, query_name, self._directory.checkpoint(name), trigger
            )
        except Exception as error:  # A broker that is down, a plan that Spark cannot stream.
            self._note_failure(name, error)
            return
        self._queries[name] = RunningQuery(started)
        if name not in self._offsets:
            self._offsets[name] = OffsetsOfQuery(query_name, topics_of(self._pipeline, flow))
        self._watcher.changed(supervisor)

    def _look_at(self, name: str) -> None:
        supervisor = self.supervisors[name]
        if supervisor.is_due(self._clock.monotonic_ms()):
            self._start(name)
        if supervisor.state is not QueryState.RUNNING:
            return
        query = self._queries[name]
        is_active = query.is_active
        self._take_progress(name)
        if is_active:
            return
        error = query.exception
        if error is not None:
            self._note_failure(name, error)
        else:
            supervisor.finished()
            self._watcher.changed(supervisor)

    def _take_progress(self, name: str) -> None:
        supervisor = self.supervisors[name]
        for batch in self._queries[name].new_progress():
            supervisor.progressed(batch)
            self._offsets[name].commit(batch.offsets)
            self._watcher.progressed(supervisor, batch)

    def _note_failure(self, name: str, error: Exception) -> None:
        from millstream.spark.pipelines.failures import explain, may_help_to_restart

        supervisor = self.supervisors[name]
        supervisor.failed(
            explain(error),
            self._clock.monotonic_ms(),
            may_restart=may_help_to_restart(error),
        )
        self._watcher.changed(supervisor)
        self._write_status("running")

    # The end.

    def _end_all(self, grace_s: float) -> None:
        """Stop what runs, after the batch that it is at if that is done in time."""
        deadline_ms = self._clock.monotonic_ms() + int(grace_s * 1000)
        running = {
            name: query
            for name, query in self._queries.items()
            if self.supervisors[name].state is QueryState.RUNNING
        }
        for query in running.values():
            query.note_batch()
        while running and self._clock.monotonic_ms() < deadline_ms and self._stop.requests < 2:
            for name in [name for name, query in running.items() if query.is_between_batches]:
                self._stop_query(name, running.pop(name))
            if running:
                self._sleep(_LOOK_S)
        for name, query in running.items():
            if grace_s:
                _logger.warning("query %s is stopped in its batch; the next run redoes it", name)
            self._stop_query(name, query)
        for name, supervisor in self.supervisors.items():
            if supervisor.state is QueryState.RUNNING and name in self._queries:
                self._take_progress(name)
            if not supervisor.has_ended:
                supervisor.stopped()
                self._watcher.changed(supervisor)
        for offsets in self._offsets.values():
            offsets.close()

    def _stop_query(self, name: str, query: RunningQuery) -> None:
        try:
            query.stop()
        except Exception as error:  # The others are to be stopped all the same.
            _logger.warning("query %s of %s: %s", name, self._pipeline.name, error)

    def _write_status(self, state: str, error: str | None = None) -> None:
        self._status_due_ms = self._clock.monotonic_ms() + _STATUS_MS
        queries: list[Any] = [each.facts() for each in self.supervisors.values()]
        status = {
            **self._about,
            "state": state,
            "error": error,
            "updated_ms": self._clock.wall_ms(),
            "queries": queries,
        }
        try:
            self._directory.write_status(status)
        except OSError as problem:
            # It is for people. A full disk may have room again, and the queries go on then.
            if self._is_status_written:
                _logger.warning("the status of %s is not written: %s", self._pipeline.name, problem)
            self._is_status_written = False
        else:
            self._is_status_written = True
