"""The ready-made pipelines: each is valid as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument
from millstream.spark.pipelines.connectors.lake.iceberg import IcebergSink
from millstream.spark.pipelines.connectors.postgres.source import PostgresSource
from millstream.spark.pipelines.loading import load
from millstream.spark.pipelines.templates import read_template, templates

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", sorted(templates()))
def test_a_template_is_a_valid_pipeline_of_its_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(read_template(name), encoding="utf-8")

    pipeline = load(file, {})

    assert pipeline.name == name
    assert pipeline.cluster.bootstrap_servers == "localhost:9092"


def test_every_way_in_and_out_has_a_template() -> None:
    assert list(templates()) == [
        "files-to-topic",
        "postgres-to-topic",
        "topic-to-delta",
        "topic-to-iceberg",
        "topic-to-parquet",
        "topic-to-postgres",
    ]
    assert templates()["topic-to-delta"].startswith("A topic to a Delta table: ")


def test_rows_rest_beside_the_checkpoints(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    text = read_template("postgres-to-topic").replace("storage: state", "storage: elsewhere")
    file.write_text(text, encoding="utf-8")

    source = load(file, {}).sources["rows"]

    assert isinstance(source, PostgresSource)
    assert source.staging == str(tmp_path / "elsewhere" / "staging" / "rows")


def test_a_catalog_of_iceberg_lies_beside_the_definition(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(read_template("topic-to-iceberg"), encoding="utf-8")

    sink = load(file, {}).sinks["export"]

    assert isinstance(sink, IcebergSink)
    assert sink.catalog["uri"] == f"sqlite:///{tmp_path}/iceberg.db"
    assert sink.catalog["warehouse"] == f"{tmp_path}/tables"


def test_a_template_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'topic-to-delta'"):
        read_template("topic-to-dleta")
