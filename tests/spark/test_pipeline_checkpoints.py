"""Runs with another storage, another definition or another directory than the run before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream.errors import CheckpointMismatch
from tests.spark.pipeline_project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing import EmbeddedBroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FILES = ("parquet", "orc", "json", "csv")
SOURCE = "sources: {raw: {format: topic, topic: '@numbers@'}}\n"
VIEWS = (
    "views:\n"
    "  numbers: {sql: 'SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM raw'}\n"
    "  sums: {from: numbers, aggregate: {group_by: [n % 2 AS odd], select: {total: sum(n)}}}\n"
)


@pytest.fixture
def project(tmp_path: Path, millstream_broker: EmbeddedBroker, spark: SparkSession) -> Project:
    project = Project(tmp_path, millstream_broker, spark)
    project.create("numbers")
    project.send("numbers", ["1", "2", "3"])
    return project


def numbers_in(project: Project, kind: str, directory: str | None = None) -> list[int]:
    assert project.spark is not None
    reader = project.spark.read.format(kind).schema("n INT")
    rows = reader.load(str(project.directory / (directory or kind))).collect()
    return sorted(row.n for row in rows)


def file_sinks(*kinds: str) -> str:
    return "sinks:\n" + "".join(
        f"  {kind}: {{from: numbers, format: {kind}, path: {kind}}}\n" for kind in kinds
    )


def test_files_of_another_storage_are_refused_and_nothing_is_lost(project: Project) -> None:
    project.define(SOURCE + VIEWS + file_sinks(*FILES))
    assert project.run().rows == dict.fromkeys(FILES, 3)
    project.send("numbers", ["4"])
    project.run()
    assert [numbers_in(project, kind) for kind in FILES] == [[1, 2, 3, 4]] * 4
    project.send("numbers", ["5"])

    for kind in FILES:
        project.define("storage: new\n" + SOURCE + VIEWS + file_sinks(kind))
        with pytest.raises(CheckpointMismatch, match=rf"/{kind} has batches of .*/state.*--storag"):
            project.run()

    project.define(SOURCE + VIEWS + file_sinks(*FILES))
    project.run()
    assert [numbers_in(project, kind) for kind in FILES] == [[1, 2, 3, 4, 5]] * 4


def test_files_that_spark_wrote_by_itself_are_refused_too(project: Project) -> None:
    project.define(SOURCE + VIEWS + file_sinks("json"))
    project.run()
    (project.directory / "json" / "_spark_metadata" / "owner.json").unlink()

    project.define("storage: new\n" + SOURCE + VIEWS + file_sinks("json"))
    with pytest.raises(CheckpointMismatch, match=r"has batches up to 0, of which the checkpoint"):
        project.run()


def test_a_directory_that_lost_its_files_is_refused(project: Project) -> None:
    project.define(SOURCE + VIEWS + file_sinks("json"))
    project.run()
    (project.directory / "json").rename(project.directory / "away")

    with pytest.raises(CheckpointMismatch, match="lacks batches: the checkpoint is at batch 0"):
        project.run()


def test_every_other_sink_writes_all_rows_again_with_a_new_storage(project: Project) -> None:
    sinks = (
        "sinks:\n"
        "  appended: {from: numbers, format: topic, topic: '@appended@'}\n"
        "  updated: {from: sums, format: topic, topic: '@updated@', output_mode: update}\n"
        "  compact: {from: numbers, format: compact-parquet, path: compact}\n"
        "  delta: {from: numbers, format: delta, path: delta}\n"
    )
    for storage in ("first", "second"):
        project.define(f"storage: {storage}\n" + SOURCE + VIEWS + sinks)
        assert project.run().rows == dict.fromkeys(("appended", "updated", "compact", "delta"), 3)

    from deltalake import DeltaTable

    assert [each["n"] for each in project.rows("appended")] == [1, 1, 2, 2, 3, 3]
    assert sorted(each["total"] for each in project.rows("updated")) == [2, 2, 4, 4]
    assert numbers_in(project, "parquet", "compact") == [1, 1, 2, 2, 3, 3]
    table = DeltaTable(str(project.directory / "delta")).to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == [1, 1, 2, 2, 3, 3]


def test_a_checkpoint_of_another_definition_is_refused(project: Project) -> None:
    sink = "sinks: {out: {from: raw, format: topic, topic: '@copies@'}}\n"
    project.define(SOURCE + sink)
    project.run()
    project.create("others")
    project.send("others", ["7"])

    project.define(SOURCE.replace("numbers", "others") + sink)
    with pytest.raises(CheckpointMismatch, match=r"it read topic numbers-.* reads topic others-"):
        project.run()

    made = project.directory / "state" / "checkpoints" / "out" / "definition.json"
    assert json.loads(made.read_text())["writes"] == f"topic {project.topic('copies')}"
