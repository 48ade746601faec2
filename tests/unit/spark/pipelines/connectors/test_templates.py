"""The ready-made pipelines: each is valid as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from millstream.errors import InvalidArgument
from millstream.spark.pipelines.connectors.lake.iceberg import IcebergSink
from millstream.spark.pipelines.connectors.postgres.source import PostgresSource
from millstream.spark.pipelines.loading import load
from millstream.spark.pipelines.templates import read_template, templates


@pytest.mark.parametrize("name", sorted(templates()))
def test_a_template_is_a_valid_pipeline_of_its_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(read_template(name), encoding="utf-8")

    pipeline = load(file, {})

    assert pipeline.name == name
    assert pipeline.cluster.bootstrap_servers == "localhost:9092"


PAGE = Path(__file__).parents[5] / "docs" / "howto" / "import-and-export.md"
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split()[-1])
def test_an_example_of_the_page_has_no_fault(example: str, tmp_path: Path) -> None:
    # The page shows the part that matters; what is left out is added here.
    shown = yaml.safe_load(example)
    shown |= {"name": "example", "cluster": {"bootstrap_servers": "localhost:9092"}}
    if "sources" not in shown:
        shown["sources"] = {"records": {"format": "topic", "topic": "orders"}}
        shown.setdefault("views", {"rows": {"sql": "SELECT * FROM records"}})
    shown.setdefault("sinks", {"shown": {"from": "rows", "format": "console"}})
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(shown), encoding="utf-8")

    assert load(file, {}).name == "example"


def test_the_page_has_every_template() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert [name for name in templates() if f"| `{name}` |" not in page] == []


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
