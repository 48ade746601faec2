"""`millstream pipeline validate --deep`: Spark has a look, and nothing is left behind."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.pipeline import validate
from millstream.spark.pipelines import load
from millstream.spark.pipelines.assembly import Assembly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

DEFINITION = """
name: trial
libraries: [functions.py]
sources:
  raw: {format: json, path: inbox, schema: inferred}
views:
  same: {python: same, from: [raw]}
sinks:
  out: {from: same, format: console}
"""


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline that learns its columns; commands run in the session of the tests."""

    @contextmanager
    def running(*_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("millstream.cli.pipeline_run.spark_session", running)
    (tmp_path / "pipeline.yaml").write_text(DEFINITION)
    (tmp_path / "functions.py").write_text("def same(raw):\n    return raw\n")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "one.json").write_text('{"id": 1}\n')
    return tmp_path


def columns(project: Path, spark: SparkSession, storage: str | None = None) -> list[str]:
    """The columns that a run takes."""
    return Assembly(load(project, storage=storage), spark).frame("raw").columns


def files(project: Path) -> list[str]:
    return sorted(str(each.relative_to(project)) for each in project.rglob("*") if each.is_file())


def test_a_look_does_not_decide_on_the_columns_of_runs(project: Path, spark: SparkSession) -> None:
    before = files(project)

    validate(project, deep=True)

    assert files(project) == before
    (project / "inbox" / "one.json").write_text('{"id": 1, "more": 2}\n')
    assert columns(project, spark) == ["id", "more"]


def test_a_look_sees_the_columns_that_a_run_has_kept(project: Path, spark: SparkSession) -> None:
    columns(project, spark)
    (project / "functions.py").write_text("def same(raw):\n    return raw.select('id')\n")
    (project / "inbox" / "one.json").write_text('{"more": 2}\n')

    validate(project, deep=True)

    assert columns(project, spark) == ["id"]


def test_what_is_kept_is_in_the_storage_that_the_command_names(
    project: Path, spark: SparkSession
) -> None:
    columns(project, spark, storage=str(project / "elsewhere"))

    assert "elsewhere/schemas/raw.json" in files(project)
    assert not (project / "state").exists()
