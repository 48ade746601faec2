"""Source, sink and pipelines on a Spark cluster: executors in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Producer, read_topic
from millstream.testing import EmbeddedBroker
from tests.interop.spark_cluster import running_cluster
from tests.interop.spark_cluster_job import SLOW_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(1000)]

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS_MAX = 900
PARTITIONS = 4
ROWS = 40
PIPELINE = """
name: cluster
storage: {home}/state
cluster: {{bootstrap_servers: "{bootstrap}"}}
libraries: [doubling.py]
sources:
  numbers: {{format: topic, topic: input, value_format: json, value_schema: number BIGINT}}
views:
  plain: {{sql: SELECT value.number AS number FROM numbers}}
  doubled: {{from: plain, python: doubled}}
sinks:
  sums: {{from: doubled, format: topic, topic: doubled, value: twice}}
"""
LIBRARY = """
import pandas as pd
from pyspark.sql import functions as F

FACTOR = 2


def doubled(plain):
    @F.pandas_udf("long")
    def twice(numbers: pd.Series) -> pd.Series:
        return numbers * FACTOR

    return plain.select(twice("number").alias("twice"))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster for all tests of this module."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """With an input of some rows in each partition."""
    with EmbeddedBroker() as broker:
        broker.create_topic("input", PARTITIONS)
        broker.create_topic("output", 2)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(ROWS):
                value = json.dumps({"number": number})
                producer.send("input", value, key=str(number), partition=number % PARTITIONS)
        yield broker


def run(*arguments: str | Path) -> None:
    """Run a program of the driver to its good end."""
    code, said = run_anyhow(*arguments)
    assert code == 0, said[-4000:]


def run_anyhow(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Run a program of the driver; its exit code, and what it said."""
    ran = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def committed(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    read = read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")
    found: list[bytes] = read.to_arrow().column("value").to_pylist()
    return sorted(found)


def test_a_second_copy_of_a_slow_task_neither_loses_nor_doubles_rows(
    master: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    job = {
        "master": master,
        "bootstrap": broker.bootstrap_servers,
        "input": "input",
        "output": "output",
        "notes": str(notes),
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    (tmp_path / "job.json").write_text(json.dumps(job))

    run("tests.interop.spark_cluster_job", tmp_path / "job.json")

    assert {f"{SLOW_TASK}-0", f"{SLOW_TASK}-1"} <= {each.name for each in notes.iterdir()}
    assert committed(broker, "output") == committed(broker, "input")


def pipeline_command(
    master: str, broker: EmbeddedBroker, home: Path, *more: str
) -> list[str | Path]:
    """Write a pipeline, and say how it is run."""
    (home / "pipeline.yaml").write_text(
        PIPELINE.format(home=home, bootstrap=broker.bootstrap_servers)
    )
    (home / "doubling.py").write_text(LIBRARY)
    settings = ["spark.driver.host=127.0.0.1", "spark.driver.memory=512m", *more]
    settings += ["spark.executor.memory=512m", "spark.sql.shuffle.partitions=2"]
    options = [part for each in settings for part in ("--conf", each)]
    command = ("millstream", "pipeline", "run", home, "--available-now", "--master", master)
    return [*command, *options]


def test_executors_whose_python_lacks_millstream_are_told_of_at_once(
    master: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    # One interpreter for the driver; and on executors one without any package.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} $ON_EXECUTOR "$@"\n')
    python.chmod(0o755)
    command = pipeline_command(master, broker, tmp_path, "spark.executorEnv.ON_EXECUTOR=-S")

    code, said = run_anyhow(*command, PYSPARK_PYTHON=str(python))

    assert code == 1
    assert "the Python of a task has no module" in said
    assert "Spark's executors need what the driver has" in said


def test_a_pipeline_runs_on_a_cluster_and_takes_its_libraries_along(
    master: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    run(*pipeline_command(master, broker, tmp_path))

    assert sorted(map(int, committed(broker, "doubled"))) == [2 * each for each in range(ROWS)]
