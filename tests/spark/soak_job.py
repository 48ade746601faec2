"""The Spark job of the exactly-once soak: files or a topic to a topic, with a sink that kills.

`exactly_once_soak` runs it as a process, `python -m tests.spark.soak_job PLAN`, again and again
until it ends by itself. The plan says at which step of which task who is to be killed; each entry
is used once, whoever restarts meanwhile. An entry is a file: in `plan` while it is to come, in
`claimed` when its moment has come, in `done` when its kill has happened.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from millstream.spark.sessions import session
from millstream.spark.sink.exactly_once import ExactlyOnceTask
from millstream.spark.sink.stream_writer import MillstreamStreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

TASKS = 3
ATTEMPTS_MAX = 8
ROWS_PER_ARROW_BATCH = 8
ROWS_PER_BATCH = 90
BROKER_LOOKS_MAX, BROKER_LOOK_SECONDS = 6_000, 0.02
COMMIT_SECONDS = 0.004
"""About how long a commit takes: somewhere in it the kill is to happen."""


@dataclass(frozen=True)
class Plan:
    """Where the job's files are, what it writes to, and who is killed when."""

    directory: str
    bootstrap: str
    topic: str
    input_topic: str | None
    driver_group: int
    seed: int

    @classmethod
    def read(cls, path: str) -> Plan:
        """The plan in a file, for the process group that reads it."""
        given = json.loads(Path(path).read_text())
        return cls(**given, driver_group=os.getpgrp())

    def at(self, moment: str) -> str | None:
        """Who is to be killed at a moment; nobody the second time."""
        entry = Path(self.directory, "plan", moment)
        try:
            kind = entry.read_text()
            entry.rename(Path(self.directory, "claimed", moment))
        except FileNotFoundError:
            return None
        return kind

    def visit(self, moment: str, prepare: Callable[[], None] | None = None) -> None:
        """A moment has come: do what is planned for it."""
        kind = self.at(moment)
        if kind is None:
            return
        try:
            if prepare is not None:
                prepare()
        except BaseException:
            # No kill, but a failure: it may come when the task is tried again.
            Path(self.directory, "claimed", moment).rename(Path(self.directory, "plan", moment))
            raise
        self.strike(moment, kind)

    def visit_soon(self, moment: str) -> None:
        """The same, at some time during the commit that begins now."""
        kind = self.at(moment)
        if kind is not None:
            delay = random.Random(f"{self.seed} {moment}").uniform(0, COMMIT_SECONDS)
            threading.Timer(delay, self.strike, [moment, kind]).start()

    def strike(self, moment: str, kind: str) -> None:
        """Kill: the task, the driver, the broker; or become a task that lives on without one."""
        if kind == "broker":
            self._kill_broker()
            self._note_done(moment)
            return
        if kind == "zombie":
            # Out of the group in which Spark would end it, and stopped until somebody wakes it.
            os.setsid()
            Path(self.directory, "zombies", str(os.getpid())).touch()
        self._note_done(moment)
        if kind in ("driver", "zombie"):
            os.killpg(self.driver_group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP if kind == "zombie" else signal.SIGKILL)

    def _note_done(self, moment: str) -> None:
        Path(self.directory, "claimed", moment).rename(Path(self.directory, "done", moment))

    def _kill_broker(self) -> None:
        """Kill one that lives: a life that somebody else has ended does not count twice."""
        for _ in range(BROKER_LOOKS_MAX):
            life = Path(self.directory, "broker.pid").read_text()
            with suppress(FileExistsError, ProcessLookupError):
                Path(self.directory, "lives", life).touch(exist_ok=False)
                os.kill(int(life), signal.SIGKILL)
                return
            time.sleep(BROKER_LOOK_SECONDS)
        raise TimeoutError("the broker was killed and does not come back")


def killing_task(plan: Plan) -> type[ExactlyOnceTask]:
    """A task that looks at the plan before and after each step."""

    class KillingTask(ExactlyOnceTask):
        def _at(self, moment: str, *, has_rows: bool = False) -> None:
            # What the broker has not got yet could not be left over.
            prepare = self._open().flush if has_rows else None
            plan.visit(f"{self.task.batch_id}-{self.task.partition}-{moment}", prepare)

        def initialize(self) -> None:
            self._at("begin")
            super().initialize()
            self._at("initialized")

        def read_marker(self) -> Any:
            marker = super().read_marker()
            self._at("read")
            return marker

        def produce(self, tables: Iterable[tuple[str, Any]]) -> Any:
            rows = super().produce(self._watched(tables))
            self._at("produced", has_rows=True)
            return rows

        def _watched(self, tables: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
            for number, table in enumerate(tables):
                if number == 1:
                    self._at("producing", has_rows=True)
                yield table

        def write_marker(self) -> None:
            super().write_marker()
            self._at("marked", has_rows=True)

        def commit(self) -> None:
            plan.visit_soon(f"{self.task.batch_id}-{self.task.partition}-committing")
            super().commit()
            self._at("committed")

    return KillingTask


def killing_source(plan: Plan) -> type[DataSource]:
    """`format("soak")`: our sink with those tasks."""

    class KillingWriter(MillstreamStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            plan.visit(f"{batchId}-driver-finishing")
            super().commit(messages, batchId)
            plan.visit(f"{batchId}-driver-finished")

    class KillingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "soak"

        def streamWriter(self, schema: Any, overwrite: bool) -> KillingWriter:
            writer = KillingWriter(self.options, schema)
            writer.tasks.task_class = killing_task(plan)
            return writer

    return KillingSource


def settings(home: Path) -> Mapping[str, object]:
    """Spark's, for many short lives on few cores."""
    return {
        "spark.sql.shuffle.partitions": TASKS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": ROWS_PER_ARROW_BATCH,
        "spark.sql.warehouse.dir": home / "warehouse",
        "spark.local.dir": home / "local",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "OFF",
    }


def incoming(spark: SparkSession, plan: Plan) -> DataFrame:
    """The input: each file is a batch, or so many records of the topic are."""
    if plan.input_topic is None:
        files = spark.readStream.schema("key string, value string")
        return files.option("maxFilesPerTrigger", 1).json(str(Path(plan.directory, "input")))
    return (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("subscribe", plan.input_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load()
        .select("key", "value")
    )


def main() -> None:
    """Write every batch of the input, and end."""
    plan = Plan.read(sys.argv[1])
    home = Path(plan.directory)
    spark = session("soak", f"local[2,{ATTEMPTS_MAX}]", **settings(home))
    spark.dataSource.register(killing_source(plan))
    query = (
        incoming(spark, plan)
        .repartition(TASKS, "key")
        .writeStream.format("soak")
        .option("kafka.bootstrap.servers", plan.bootstrap)
        .option("topic", plan.topic)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
