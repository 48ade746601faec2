"""Pipelines in Spark when rows are bad, queries fail, and somebody wants the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

from millstream.client.retrying.replay import ReplayPlan, replay
from millstream.errors import InvalidPipeline, PipelineFailed
from millstream.spark.pipelines.assembly import Assembly
from millstream.spark.pipelines.loading import load
from millstream.spark.pipelines.runner import StopSwitch
from millstream.spark.pipelines.state_directory import StateDirectory
from tests.spark.pipeline_project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing import EmbeddedBroker

pytestmark = pytest.mark.integration

NUMBERS = """
sources:
  raw: {format: topic, topic: '@numbers@', max_offsets_per_trigger: 5}
"""


@pytest.fixture
def project(tmp_path: Path, millstream_broker: EmbeddedBroker, spark: SparkSession) -> Project:
    return Project(tmp_path, millstream_broker, spark)


def test_rows_that_fail_an_expectation_are_dropped_or_buried_with_their_cause(
    project: Project,
) -> None:
    project.define(
        NUMBERS
        + """
views:
  numbers:
    sql: SELECT try_cast(CAST(value AS STRING) AS INT) AS number, * FROM raw
    expectations:
      - {name: is_number, condition: number IS NOT NULL, on_violation: dead-letter, topic: '@dead@'}
      - {name: is_small, condition: number < 100}
sinks:
  good: {from: numbers, format: topic, topic: '@good@', value: number}
"""
    )
    project.create("numbers")
    project.send("numbers", ["1", "two", "3", "400", "fünf"])

    project.run()

    assert project.rows("good") == [1, 3]
    dead = project.records("dead")
    assert [each["value"].decode() for each in dead] == ["two", "fünf"]
    headers = {each["key"]: each["value"].decode() for each in dead[1]["headers"]}
    assert headers["millstream.retry.topic"] == project.topic("numbers")
    assert headers["millstream.retry.partition"] == "0"
    assert headers["millstream.retry.offset"] == "4"
    assert headers["millstream.retry.group"] == f"{project.group}.numbers.dead"
    assert headers["millstream.retry.error.type"] == "millstream.ExpectationFailed"
    assert headers["millstream.retry.error.message"] == (
        "a row of numbers does not fulfil the expectation is_number: number IS NOT NULL"
    )

    # `replay` reads these headers: the letters go back to where they came from.
    sent = replay(project.brokers, ReplayPlan(source=project.topic("dead"))).sent
    assert dict(sent) == {project.topic("numbers"): 2}


def test_a_row_may_fail_the_pipeline(project: Project) -> None:
    project.define(
        NUMBERS
        + """
views:
  numbers:
    sql: SELECT CAST(value AS STRING) AS number FROM raw
    expectations: [{name: is_short, condition: length(number) < 3, on_violation: fail}]
sinks:
  good: {from: numbers, format: topic, topic: '@good@'}
"""
    )
    project.create("numbers")
    project.send("numbers", ["1", "long"])

    with pytest.raises(PipelineFailed, match="numbers does not fulfil the expectation is_short"):
        project.run()

    assert project.watcher.states[-1] == ("good", "failed")
    assert project.records("good") == []


FAILING = """
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import functions as F

    MARK = Path(__file__).parent / "failed"


    def fragile(raw):
        mark = str(MARK)

        @F.pandas_udf("string")
        def check(values: pd.Series) -> pd.Series:
            if "7" in set(values) and not Path(mark).exists():
                Path(mark).touch()
                raise OSError("the disk is full")
            return values

        return raw.select(check(F.col("value").cast("string")).alias("value"))
"""


def test_a_query_that_fails_in_the_middle_is_started_again_and_loses_and_doubles_nothing(
    project: Project,
) -> None:
    project.define(
        "libraries: [fragile.py]\n"
        + NUMBERS
        + """
views:
  checked: {from: raw, python: fragile}
sinks:
  good: {from: checked, format: topic, topic: '@good@'}
""",
        fragile_py=FAILING,
    )
    project.create("numbers")
    project.send("numbers", [str(each) for each in range(12)])

    project.run()

    assert sorted(int(each["value"]) for each in project.records("good")) == list(range(12))
    assert ("good", "backing off") in project.watcher.states
    status = StateDirectory(project.directory / "state").read_status() or {}
    assert status["queries"][0]["error"] == "OSError: the disk is full"
    assert status["state"] == "finished"


def test_a_run_that_is_stopped_goes_on_where_it_was(project: Project) -> None:
    project.define(
        NUMBERS
        + """
  ticks: {format: rate, rows_per_second: 5}
sinks:
  good: {from: raw, format: topic, topic: '@good@'}
  parquet: {from: raw, format: parquet, path: out}
"""
    )
    project.create("numbers")
    project.send("numbers", [str(each) for each in range(20)])
    stop = project.watcher.stop_after_batch = StopSwitch()

    first = project.run(available_now=False, stop=stop)

    assert first.is_stopped
    assert set(project.watcher.states) >= {("good", "stopped"), ("parquet", "stopped")}
    project.watcher.stop_after_batch = None
    project.run()
    assert sorted(int(each["value"]) for each in project.records("good")) == list(range(20))
    files = (project.directory / "out").glob("*.parquet")
    assert sum(pyarrow.parquet.read_metadata(each).num_rows for each in files) == 20


def test_spark_finds_what_only_spark_can(project: Project, spark: SparkSession) -> None:
    project.define(
        NUMBERS
        + """
views:
  wrong: {sql: SELECT nothing FROM raw}
  behind: {sql: SELECT * FROM wrong}
  worse: {from: raw, python: broken}
  sums: {from: raw, aggregate: {group_by: [key], select: {n: count(*)}}}
libraries: [broken.py]
sinks:
  out: {from: behind, format: console}
  never: {from: sums, format: console}
""",
        broken_py="def broken(raw):\n    return raw.columns\n",
    )

    faults = Assembly(load(project.directory), spark).faults()

    assert [(each.place.line, each.problem.split(":")[0]) for each in faults] == [
        (9, "view 'wrong'"),
        (11, "view 'worse'"),
        (16, "sink 'never'"),
    ]
    assert "UNRESOLVED_COLUMN" in faults[0].problem
    assert "broken() gives list; a view is a data frame" in faults[1].problem
    assert "watermark" in faults[2].problem
    with pytest.raises(InvalidPipeline, match="view 'wrong'"):
        project.run()
    assert project.watcher.states == []
