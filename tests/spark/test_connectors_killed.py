"""Import and export by a pipeline whose driver is killed, again and again, in the middle.

One pipeline has all connectors. Each of its lives but the last ends with a kill, when every one of
them has written some of its rows and has more to write. In the end every topic and table has what
it would have had without.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyarrow import dataset

from tests.spark.pipeline_project import Project
from tests.spark.test_pipeline_command import millstream_command, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing import EmbeddedBroker

# Sessions of Spark start one after the other: `make interop` has the time for it.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

KILLS = 4
BATCHES_PER_LIFE = 8
ROWS_PER_BATCH = 15
ROWS_PER_LIFE = BATCHES_PER_LIFE * ROWS_PER_BATCH
KEYS = 50
DEFINITION = """
sources:
  files:
    format: json
    path: in
    schema: id BIGINT, item STRING
    options: {{maxFilesPerTrigger: "1"}}
  table:
    format: postgres
    connection: "{postgres}"
    table: numbers
    column: id
    rows_per_batch: {size}
  orders: {{format: topic, topic: '@orders@', max_offsets_per_trigger: {size}}}
views:
  rows:
    sql: SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, offset AS place FROM orders
  latest:
    sql: SELECT id % {keys} AS key, id AS item, place FROM rows
sinks:
  from_files: {{from: files, format: topic, topic: '@filed@', key: id}}
  from_table: {{from: table, format: topic, topic: '@rows@', key: id}}
  to_table: {{from: latest, format: postgres, connection: "{postgres}", table: latest,
    key: key, order_by: place}}
  to_delta: {{from: rows, format: delta, path: delta, compact_every: 3}}
  to_iceberg:
    from: rows
    format: iceberg
    catalog: {{type: sql, uri: "sqlite:///{home}/catalog.db", warehouse: "{home}/warehouse"}}
    table: s.rows
    compact_every: 3
  to_parquet: {{from: rows, format: compact-parquet, path: parquet}}
  to_spark_parquet: {{from: rows, format: parquet, path: spark-parquet}}
"""
SINKS = (
    "from_files",
    "from_table",
    "to_table",
    "to_delta",
    "to_iceberg",
    "to_parquet",
    "to_spark_parquet",
)


class Pipeline:
    """The pipeline, its input, and its lives."""

    def __init__(self, project: Project, postgres: str) -> None:
        self.project = project
        self.postgres = postgres
        self._lives = 0
        self.numbers: list[int] = []
        project.define(
            DEFINITION.format(
                postgres=postgres, home=project.directory, size=ROWS_PER_BATCH, keys=KEYS
            )
        )
        project.create("orders", "filed", "rows")
        (project.directory / "in").mkdir()
        with psycopg.connect(postgres) as database:
            database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, item TEXT)")

    def feed(self) -> None:
        """The input of one more life, for all sources."""
        first = len(self.numbers)
        numbers = range(first, first + ROWS_PER_LIFE)
        self.numbers += numbers
        self.project.send("orders", [str(each) for each in numbers])
        for start in numbers[::ROWS_PER_BATCH]:
            rows = [
                {"id": each, "item": f"i{each}"} for each in range(start, start + ROWS_PER_BATCH)
            ]
            path = self.project.directory / f"{start}.json"
            path.write_text("\n".join(map(json.dumps, rows)))
            path.rename(self.project.directory / "in" / path.name)
        with psycopg.connect(self.postgres) as database:
            database.cursor().executemany(
                "INSERT INTO numbers VALUES (%s, %s)", [(each, f"i{each}") for each in numbers]
            )

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """One life, in a process group of its own, none of which outlives the block."""
        self._lives += 1
        with self._told.open("ab") as lines:
            process = subprocess.Popen(
                [
                    *millstream_command("run", self.project.directory, "--json"),
                    *("--master", "local[2]", "--conf", "spark.driver.memory=768m", *options),
                ],
                stdout=lines,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                kill_all_of(process)

    @property
    def _told(self) -> Path:
        return self.project.directory / f"life-{self._lives}.json"

    def is_in_the_middle(self) -> bool:
        """Whether every sink has done a batch in this life."""
        lines = [line for line in self._told.read_text().splitlines() if line.endswith("}")]
        told = [json.loads(line) for line in lines]
        return {each["query"] for each in told if each["event"] == "progress"} == set(SINKS)


def kill_all_of(process: subprocess.Popen[bytes]) -> None:
    """Driver and JVM at once, as a machine that loses its power."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_what_is_imported_and_exported_is_the_input_whenever_the_driver_was_killed(
    tmp_path: Path, millstream_broker: EmbeddedBroker, postgres: str
) -> None:
    pipeline = Pipeline(Project(tmp_path, millstream_broker), postgres)
    for _ in range(KILLS):
        pipeline.feed()
        with pipeline.running() as process:
            wait_until(pipeline.is_in_the_middle, process)
    with pipeline.running("--available-now") as process:
        assert process.wait() == 0

    numbers = pipeline.numbers
    rows = [{"id": each, "item": f"i{each}"} for each in numbers]
    assert by_id(pipeline.project.rows("filed")) == rows
    assert by_id(pipeline.project.rows("rows")) == rows
    with psycopg.connect(postgres) as database:
        found = database.execute("SELECT key, item FROM latest ORDER BY key").fetchall()
    assert found == sorted((each % KEYS, each) for each in numbers[-KEYS:])
    assert ids(delta(tmp_path / "delta").to_pyarrow_table()) == numbers
    assert ids(iceberg(tmp_path).scan().to_arrow()) == numbers
    assert ids(dataset.dataset(tmp_path / "parquet").to_table()) == numbers
    logged = dataset.dataset(files_of_spark(tmp_path / "spark-parquet"))
    assert ids(logged.to_table()) == numbers


def by_id(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row["id"])


def ids(table: Any) -> list[int]:
    found: list[int] = table.column("id").to_pylist()
    return sorted(found)


def files_of_spark(directory: Path) -> list[str]:
    """The files that Spark's log of a directory names; others are of tries that failed."""
    logs = [each for each in (directory / "_spark_metadata").iterdir() if each.name[0] != "."]
    lines = [line for each in logs for line in each.read_text().splitlines()[1:]]
    return sorted({json.loads(line)["path"].removeprefix("file://") for line in lines})


def delta(path: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(path))


def iceberg(home: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{home}/catalog.db",
        "warehouse": str(home / "warehouse"),
    }
    return load_catalog("default", **catalog).load_table("s.rows")
