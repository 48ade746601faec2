"""A stream from topic to topic on a cluster, exactly once, one of whose tasks is slow at first.

A program of its own, because a session is for a whole process:
`python -m tests.interop.spark_cluster_job JOB`, a JSON file. Spark starts a second copy of the slow
task; every copy leaves a file with its number, so that a test sees that there were two.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from millstream.spark.sessions import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOW_TASK = 3
SLOW_SECONDS = 60
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.speculation": True,
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.multiplier": 1.1,
    "spark.speculation.minTaskRuntime": "100ms",
    # The first rows of a task are written while the others are not there yet.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 2,
}


def slow_at_first(notes: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Passes batches on; the first copy of one task sleeps before its last one."""

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        context: Any = TaskContext.get()
        note = notes / f"{context.partitionId()}-{context.attemptNumber()}"
        is_slow = context.partitionId() == SLOW_TASK and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if number == 1:
                note.touch()
                if is_slow:
                    time.sleep(SLOW_SECONDS)
            yield batch

    return passed_on


def main() -> None:
    """Run it until all is written."""
    job = json.loads(Path(sys.argv[1]).read_text())
    spark = session("cluster", job["master"], **SETTINGS)
    broker = {"kafka.bootstrap.servers": job["bootstrap"]}
    rows = spark.readStream.format("millstream").options(**broker, subscribe=job["input"])
    passed = (
        rows.option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .mapInArrow(slow_at_first(Path(job["notes"])), "key BINARY, value BINARY")
    )
    writer = passed.writeStream.format("millstream").options(**broker, topic=job["output"])
    writer = writer.option("delivery", "exactly-once").trigger(availableNow=True)
    writer.option("checkpointLocation", job["checkpoint"]).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
