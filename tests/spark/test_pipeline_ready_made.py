"""What `millstream pipeline init` writes runs as it is: the newcomer's example and every template.

Their topics have fixed names, so each has a broker that nobody else has. What comes out of the
example is compared with what docs/topics/pipelines.md shows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.dataset
import pyarrow.parquet
import pytest

import millstream
from millstream.cli.app import run as command
from millstream.spark.pipelines import load
from millstream.spark.pipelines.runner import run
from millstream.testing import EmbeddedBroker
from tests.docs.pages import DOCS, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CSV = "id,customer,amount\n1,anna,10.5\n2,ben,4\n1,anna,11\n"
IMPORTED = [
    {"id": 1, "customer": "anna", "amount": 10.5},
    {"id": 2, "customer": "ben", "amount": 4.0},
    {"id": 1, "customer": "anna", "amount": 11.0},
]


def shown_by_the_page() -> dict[str, list[str]]:
    """What the page's first block prints, by the topic that is consumed."""
    [block, *_] = blocks_of(DOCS / "topics" / "pipelines.md")
    assert block.language == "console"
    shown: dict[str, list[str]] = {}
    printed: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            printed = shown.setdefault(line.split()[-1], [])
        else:
            printed.append(line)
    return shown


def initialized(directory: Path, *options: str) -> Path:
    """A directory with the files that the command writes."""
    assert command(["pipeline", "init", str(directory), *options]) == 0
    return directory


def run_here(directory: Path, spark: SparkSession, address: str, **variables: str) -> None:
    """As `millstream pipeline run --available-now`, in the session of the tests."""
    environment = {"MILLSTREAM_BOOTSTRAP_SERVER": address, **variables}
    run(load(directory, environment), spark, available_now=True)


def records(address: str, topic: str) -> list[dict[str, Any]]:
    read = millstream.read_topic(address, topic, isolation_level="read_committed")
    rows: list[dict[str, Any]] = read.to_arrow().to_pylist()
    return rows


def test_the_example_gives_what_its_page_shows(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = initialized(tmp_path / "orders")
    with EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
        run_here(directory, spark, address)
        capfd.readouterr()
        consumed = {}
        for topic in ("orders-per-minute", "orders.checked.dead"):
            assert command(["consume", topic, "--bootstrap-server", address]) == 0
            consumed[topic] = sorted(capfd.readouterr().out.splitlines())

    page = shown_by_the_page()
    assert consumed == {topic: sorted(page[topic]) for topic in consumed}
    # Priced orders, the duplicate among them: it is left out later, on the way to the sums.
    archive = pyarrow.dataset.dataset(directory / "archive", exclude_invalid_files=True)
    assert sorted(archive.to_table(["id"])["id"].to_pylist()) == [1, 2, 2, 3, 5, 6]


@pytest.fixture(scope="module")
def imported(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    """A broker whose topic was filled by the template for files."""
    directory = initialized(tmp_path_factory.mktemp("files"), "--template", "files-to-topic")
    (directory / "in").mkdir()
    (directory / "in" / "orders.csv").write_text(CSV)
    with EmbeddedBroker() as broker:
        run_here(directory, spark, broker.bootstrap_servers)
        yield broker


def test_files_become_records(imported: EmbeddedBroker) -> None:
    found = records(imported.bootstrap_servers, "orders")

    assert [each["key"] for each in found] == [b"1", b"2", b"1"]
    assert [json.loads(each["value"]) for each in found] == IMPORTED


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_records_become_rows_of_a_table(
    kind: str, imported: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    directory = initialized(tmp_path / "export", "--template", f"topic-to-{kind}")

    run_here(directory, spark, imported.bootstrap_servers)

    rows = table_of(kind, directory).to_pylist()
    rows.sort(key=lambda row: row["offset"])
    assert [(row["key"], row["customer"], row["amount"]) for row in rows] == [
        (str(each["id"]), each["customer"], each["amount"]) for each in IMPORTED
    ]
    assert {row["topic"] for row in rows} == {"orders"}
    assert all(str(row["day"]) == f"{row['timestamp']:%Y-%m-%d}" for row in rows)


def table_of(kind: str, directory: Path) -> Any:
    """What other programs read."""
    if kind == "parquet":
        return pyarrow.parquet.read_table(directory / "tables" / "orders")
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(directory / "tables" / "orders")).to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    places = {"uri": f"sqlite:///{directory}/iceberg.db", "warehouse": f"{directory}/tables"}
    catalog = load_catalog("default", type="sql", **places)
    return catalog.load_table("sales.orders").scan().to_arrow()


def test_records_become_rows_of_postgres_and_records_again(
    imported: EmbeddedBroker, spark: SparkSession, tmp_path: Path, postgres: str
) -> None:
    there = initialized(tmp_path / "there", "--template", "topic-to-postgres")
    back = initialized(tmp_path / "back", "--template", "postgres-to-topic")

    run_here(there, spark, imported.bootstrap_servers, POSTGRES=postgres)
    with EmbeddedBroker() as broker:
        run_here(back, spark, broker.bootstrap_servers, POSTGRES=postgres)
        found = records(broker.bootstrap_servers, "orders")

    last = [IMPORTED[2], IMPORTED[1]]
    with psycopg.connect(postgres) as database:
        rows = database.execute("SELECT * FROM orders ORDER BY id").fetchall()
    assert rows == [tuple(each.values()) for each in last]
    assert [(each["key"], json.loads(each["value"])) for each in found] == [
        (str(each["id"]).encode(), each) for each in last
    ]
