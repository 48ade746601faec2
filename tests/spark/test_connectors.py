"""Import and export with Spark, a broker and PostgreSQL: exact results through restarts.

A query is stopped between its write and Spark's note that the batch is done by taking that note
away: it is what a kill at that moment leaves behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyarrow import dataset
from pyspark.errors import StreamingQueryException

import millstream
from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.jdbc import JdbcSink, JdbcSource
from millstream.spark.pipelines.connectors.lake.delta import DeltaSink
from millstream.spark.pipelines.connectors.lake.iceberg import IcebergSink
from millstream.spark.pipelines.connectors.lake.parquet import CompactParquetSink
from millstream.spark.pipelines.connectors.postgres.sink import PostgresSink
from millstream.spark.pipelines.connectors.postgres.source import PostgresSource
from millstream.spark.pipelines.files import CsvSource, JsonSource
from millstream.spark.pipelines.learned_schema import learned_schema
from millstream.spark.pipelines.sinks import Trigger
from millstream.spark.pipelines.topics import TopicSink, TopicSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.sinks import Sink
    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

ALL_THERE_IS = Trigger(is_available_now=True)


def run(sinks: dict[str, tuple[Sink, DataFrame]], home: Path) -> None:
    """Run the queries, one after another, until all that is there now is done."""
    for name, (sink, df) in sinks.items():
        while not _is_done(sink.start(df, name, str(home / name), ALL_THERE_IS)):
            pass


def _is_done(query: StreamingQuery) -> bool:
    """Whether the query has come to its end, not to that of Spark's patience.

    Spark gives a worker ten seconds to start. A busy machine needs more now and then, so that the
    query must be started again, as the runner of pipelines does.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if "Python worker failed to connect back" not in str(error):
            raise
        return False
    return True


def forget_last_commit(home: Path, name: str) -> None:
    """Leave what a kill between a batch's write and its commit leaves."""
    commits = home / name / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for each in commits.iterdir():
        if each.name in (str(last), f".{last}.crc"):
            each.unlink()


def values(broker: EmbeddedBroker, topic: str) -> list[Any]:
    """What a reader of committed records finds, decoded and sorted."""
    read = millstream.read_topic(
        broker.bootstrap_servers, topic, columns=["value"], isolation_level="read_committed"
    )
    return sorted(
        (json.loads(each) for each in read.to_arrow().column("value").to_pylist()),
        key=lambda row: row["id"],
    )


def test_a_table_of_postgres_goes_to_a_topic_once(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    postgres: str,
    tmp_path: Path,
) -> None:
    topic = millstream_topic("orders", partitions=2)
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute("CREATE TABLE orders (id serial PRIMARY KEY, item text)")
        database.execute("INSERT INTO orders (item) SELECT 'i' || n FROM generate_series(1, 7) n")
        source = PostgresSource(
            connection=postgres,
            table="orders",
            column="id",
            rows_per_batch=4,
            staging=str(tmp_path / "staging"),
        )
        sink = TopicSink(
            from_="orders",
            topic=topic,
            key="id",
            bootstrap_servers=millstream_broker.bootstrap_servers,
        )
        run({"import": (sink, source.open(spark, streaming=True))}, tmp_path)

        # The rows of the batch that will be done again are no longer what they were.
        database.execute("UPDATE orders SET item = 'changed'")
        database.execute("INSERT INTO orders (item) VALUES ('new')")
        forget_last_commit(tmp_path, "import")
        run({"import": (sink, source.open(spark, streaming=True))}, tmp_path)

    assert values(millstream_broker, topic) == [
        *({"id": n, "item": f"i{n}"} for n in range(1, 8)),
        {"id": 8, "item": "new"},
    ]


EXPORTED = """
SELECT CAST(CAST(key AS STRING) AS BIGINT) AS id, CAST(value AS STRING) AS name,
  value IS NULL AS deleted, offset AS place
FROM {records}
"""
APPENDED = """
SELECT CAST(CAST(key AS STRING) AS BIGINT) AS id, CAST(value AS STRING) AS name FROM {records}
"""


def test_a_topic_goes_to_tables_once(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    postgres: str,
    tmp_path: Path,
) -> None:
    topic = millstream_topic("customers")
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": str(tmp_path / "warehouse"),
    }
    records = TopicSource(
        topic=(topic,), bootstrap_servers=millstream_broker.bootstrap_servers
    ).open(spark, streaming=True)
    rows = spark.sql(EXPORTED, records=records)
    appended = spark.sql(APPENDED, records=records)
    sinks: dict[str, tuple[Sink, DataFrame]] = {
        "postgres": (
            PostgresSink(
                from_="r",
                connection=postgres,
                table="customers",
                key=("id",),
                order_by="place",
                deleted="deleted",
            ),
            rows,
        ),
        "delta": (DeltaSink(from_="r", path=str(tmp_path / "d"), compact_every=2), appended),
        "iceberg": (
            IcebergSink(from_="r", catalog=catalog, table="s.customers", compact_every=2),
            appended,
        ),
        "parquet": (CompactParquetSink(from_="r", path=str(tmp_path / "p")), appended),
    }

    def send(*pairs: tuple[str, str | None]) -> None:
        with millstream.Producer(millstream_broker.bootstrap_servers) as producer:
            for key, value in pairs:
                producer.send(topic, value and value.encode(), key=key.encode())

    send(("1", "Ada"), ("2", "Bob"), ("1", "Ada Lovelace"))
    run(sinks, tmp_path)
    for name in sinks:
        forget_last_commit(tmp_path, name)
    send(("2", None), ("3", "Cy"))
    run(sinks, tmp_path)

    with psycopg.connect(postgres) as database:
        found = database.execute("SELECT id, name FROM customers ORDER BY id").fetchall()
    assert found == [(1, "Ada Lovelace"), (3, "Cy")]
    everything = [(1, "Ada"), (1, "Ada Lovelace"), (2, "Bob"), (2, None), (3, "Cy")]
    assert _pairs(dataset.dataset(tmp_path / "p").to_table()) == everything
    assert len(list((tmp_path / "p").iterdir())) == 1
    assert _pairs(_delta(tmp_path / "d").to_pyarrow_table()) == everything
    assert len(_delta(tmp_path / "d").file_uris()) == 1
    assert _pairs(_iceberg(catalog).scan().to_arrow()) == everything
    assert len(list(_iceberg(catalog).scan().plan_files())) == 1


def _delta(path: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(path))


def _iceberg(catalog: dict[str, str]) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **catalog).load_table("s.customers")


def _pairs(table: Any) -> list[tuple[int, str | None]]:
    rows = [(row["id"], row["name"]) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1] or "~"))


def test_files_go_to_a_topic_once_and_new_ones_are_found(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    tmp_path: Path,
) -> None:
    topic = millstream_topic("rows")
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "one.csv").write_text("id,item\n1,a\n2,b\n")
    source = CsvSource(path=str(inbox), schema="id int, item string", options={"header": "true"})
    sink = TopicSink(
        from_="f",
        topic=topic,
        key="id",
        bootstrap_servers=millstream_broker.bootstrap_servers,
    )
    files: dict[str, tuple[Sink, DataFrame]] = {"files": (sink, source.open(spark, streaming=True))}
    run(files, tmp_path)

    (inbox / "two.csv").write_text("id,item\n3,c\n")
    forget_last_commit(tmp_path, "files")
    run(files, tmp_path)

    assert values(millstream_broker, topic) == [
        {"id": 1, "item": "a"},
        {"id": 2, "item": "b"},
        {"id": 3, "item": "c"},
    ]


def test_inferred_columns_are_learnt_once_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    source = JsonSource(path=str(inbox), schema="inferred", learned=str(tmp_path / "kept.json"))
    with pytest.raises(InvalidArgument, match="needs a file to learn the columns from"):
        source.open(spark, streaming=True)
    (inbox / "one.json").write_text('{"id": 1, "item": "a"}\n')
    assert source.open(spark, streaming=True).dtypes == [("id", "bigint"), ("item", "string")]

    (inbox / "one.json").write_text('{"id": "text", "more": 1}\n')

    assert source.open(spark, streaming=True).dtypes == [("id", "bigint"), ("item", "string")]


def test_inferred_columns_of_csv_have_types(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,amount\n1,2.5\n")
    source = CsvSource(
        path=str(tmp_path / "*.csv"),
        schema="inferred",
        options={"header": "true"},
        learned=str(tmp_path / "kept.json"),
    )

    assert source.open(spark, streaming=True).dtypes == [("id", "int"), ("amount", "double")]


def test_inferred_columns_cannot_be_kept_at_an_address() -> None:
    with pytest.raises(InvalidArgument, match="give the columns instead"):
        learned_schema("hdfs://cluster/state/schemas/orders.json", lambda: None)


def test_jdbc_reads_and_writes_what_spark_has_a_driver_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Derby comes with Spark, so its driver is always there.
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "one.csv").write_text("1,a\n2,b\n")
    source = CsvSource(path=str(inbox), schema="id int, item string")
    sink = JdbcSink(from_="f", url=url, table="orders", options={"driver": DERBY})

    run({"jdbc": (sink, source.open(spark, streaming=True))}, tmp_path)

    read = JdbcSource(url=url, query="SELECT * FROM orders", options={"driver": DERBY})
    assert sorted(tuple(row) for row in read.open(spark, streaming=False).collect()) == [
        (1, "a"),
        (2, "b"),
    ]


DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


def test_a_jdbc_driver_that_is_not_there_is_said_at_once(spark: SparkSession) -> None:
    source = JdbcSource(url="jdbc:nosuch://host/db?password=secret", table="t")

    with pytest.raises(ConnectorFailed, match=r"no JDBC driver for jdbc:nosuch://host/db; give"):
        source.open(spark, streaming=False)
