"""Tables that a stream is joined with (`stream: false`): what each batch sees of them.

Spark reads them anew for every batch. The pages say what that means for each kind of source; this
holds Spark to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from millstream.spark.pipelines.connectors.postgres.source import PostgresSource
from millstream.spark.pipelines.files import JsonSource
from millstream.spark.pipelines.topics import TopicSource
from millstream.spark.worker_clients import close_all
from tests.spark.source_world import SourceWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


def seen_by_batches(
    stream: DataFrame, table: DataFrame, change: Callable[[], None], checkpoint: str
) -> list[list[Any]]:
    """The table's rows as each of two batches sees them; it is changed behind each."""
    seen: list[list[Any]] = []

    def note(rows: DataFrame, _number: int) -> None:
        seen.append(sorted(row[0] for row in rows.collect()))
        change()

    joined = stream.select("offset").crossJoin(table).drop("offset")
    writing = joined.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    assert writing.trigger(availableNow=True).start().awaitTermination(90)
    return seen


def test_every_batch_reads_the_table_anew(
    world: SourceWorld,
    spark: SparkSession,
    millstream_topic: TopicFactory,
    postgres: str,
    tmp_path: Path,
) -> None:
    facts, names = millstream_topic("facts"), millstream_topic("names")
    world.produce(facts, b"1", b"2")
    world.produce(names, b"first")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "one.json").write_text('{"id": 1}\n')
    options = world.options(subscribe=facts, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    stream = spark.readStream.format("millstream").options(**options).load()
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute("CREATE TABLE ids (id bigint)")
        database.execute("INSERT INTO ids VALUES (1)")

        def change() -> None:
            world.produce(names, b"later")
            (inbox / "one.json").write_text('{"id": 2}\n')
            (inbox / "two.json").write_text('{"id": 3}\n')
            database.execute("INSERT INTO ids VALUES (2)")

        files = JsonSource(path=str(inbox), schema="id BIGINT", stream=False)
        servers = world.broker.bootstrap_servers
        records = TopicSource(topic=(names,), stream=False, bootstrap_servers=servers)
        rows = PostgresSource(connection=postgres, table="ids", stream=False)
        tables = {
            "files": files.open(spark, streaming=False),
            "records": records.open(spark, streaming=False).selectExpr("string(value)"),
            "rows": rows.open(spark, streaming=False),
        }
        seen = {}
        for name, table in tables.items():
            (inbox / "one.json").write_text('{"id": 1}\n')
            seen[name] = seen_by_batches(stream, table, change, str(tmp_path / name))

    assert seen["files"] == [[1], [2]]  # What has changed in them, but no new ones.
    first, second = seen["records"]  # As many as there were when the run began.
    assert first == second
    before, after = seen["rows"]
    assert len(after) == len(before) + 1
