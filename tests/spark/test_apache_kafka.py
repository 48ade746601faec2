"""Apache Kafka under Spark through our format: the at-least-once sink, groups, a pipeline.

The exactly-once sink has kills of its own there, tests/interop/test_spark_sink.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import millstream
from millstream.spark import commit_offsets_of
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker
from tests.spark.pipeline_project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Address:
    bootstrap_servers: str

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Apache Kafka, for all tests of the module."""
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
    broker.format()
    broker.start()
    yield Address(broker.address)
    broker.stop()


def create(kafka: Address, topic: str, partitions: int = 1) -> None:
    with millstream.Admin(kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=partitions)


def records(kafka: Address, topic: str) -> list[dict[str, Any]]:
    read = millstream.read_topic(kafka.bootstrap_servers, topic)
    rows: list[dict[str, Any]] = read.to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_a_batch_is_written_at_least_once_with_all_of_its_columns(
    kafka: Address, spark: SparkSession
) -> None:
    create(kafka, "batch", partitions=2)
    rows = spark.sql("""
        SELECT * FROM VALUES
          ('batch', binary('k'), binary('v'), 1, timestamp_millis(1767225600123),
           array(named_struct('key', 'h', 'value', binary('x')))),
          ('batch', null, null, 0, null, null)
        AS rows(topic, key, value, partition, timestamp, headers)
    """)

    rows.write.format("millstream").options(**kafka.options).mode("append").save()

    empty, full = records(kafka, "batch")
    assert (empty["key"], empty["value"], empty["partition"]) == (None, None, 0)
    assert (full["key"], full["value"], full["partition"]) == (b"k", b"v", 1)
    assert int(full["timestamp"].timestamp() * 1000) == 1767225600123
    assert [(each["key"], each["value"]) for each in full["headers"]] == [("h", b"x")]


def test_a_stream_is_written_at_least_once_and_goes_on_after_a_restart(
    kafka: Address, spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    create(kafka, "stream", partitions=2)
    inbox = tmp_path / "in"
    inbox.mkdir()

    def run() -> None:
        rows = spark.readStream.schema("key STRING, value STRING").json(str(inbox))
        writing = rows.writeStream.format("millstream").options(**kafka.options, topic="stream")
        writing = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writing.start().awaitTermination()

    for name in ("one", "two"):
        lines = (json.dumps({"key": f"{n}", "value": f"{name} {n}"}) for n in range(5))
        (inbox / f"{name}.json").write_text("\n".join(lines))
        run()

    found = sorted(each["value"].decode() for each in records(kafka, "stream"))
    assert found == [f"{name} {n}" for name in ("one", "two") for n in range(5)]


def test_offsets_of_a_query_are_a_groups_and_another_query_begins_there(
    kafka: Address, spark: SparkSession, checkpoint: str
) -> None:
    create(kafka, "watched", partitions=2)

    def send(*values: str) -> None:
        with millstream.Producer(kafka.bootstrap_servers) as producer:
            for number, value in enumerate(values):
                producer.send("watched", value, partition=number % 2)

    send("a", "b", "c")
    options = {**kafka.options, "subscribe": "watched", "startingOffsets": "earliest"}
    rows = spark.readStream.format("millstream").options(**options).load()
    writing = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writing.trigger(availableNow=True).start()
    listener = commit_offsets_of(query, "watching", kafka.bootstrap_servers)
    query.awaitTermination()
    assert listener.wait(60)

    with millstream.Admin(kafka.bootstrap_servers) as admin:
        committed = admin.list_group_offsets(["watching"])["watching"]
    assert {place.partition: each.offset for place, each in committed.items()} == {0: 2, 1: 1}

    send("d", "e")
    later = spark.read.format("millstream").options(**{**options, "startingGroup": "watching"})
    assert sorted(bytes(row.value) for row in later.load().collect()) == [b"d", b"e"]


def test_a_pipeline_reads_and_writes_apache_kafka(
    kafka: Address, spark: SparkSession, tmp_path: Path
) -> None:
    project = Project(tmp_path, kafka, spark)
    project.define(
        """
sources:
  raw: {format: topic, topic: '@numbers@'}
views:
  numbers:
    sql: SELECT try_cast(CAST(value AS STRING) AS INT) AS number, * FROM raw
    expectations:
      - {name: is_number, condition: number IS NOT NULL, on_violation: dead-letter, topic: '@dead@'}
sinks:
  once: {from: numbers, format: topic, topic: '@once@', value: number, partitions: 2}
  again: {from: numbers, format: topic, topic: '@again@', value: number, delivery: at-least-once}
"""
    )
    project.create("numbers", partitions=2)
    project.send("numbers", ["1", "two", "3"])
    project.run()
    project.send("numbers", ["4"])
    project.run()

    assert project.rows("once") == project.rows("again") == [1, 3, 4]
    assert [each["value"] for each in project.records("dead")] == [b"two"]
    with millstream.Admin(kafka.bootstrap_servers) as admin:
        group = f"{project.group}.once"
        committed = admin.list_group_offsets([group])[group]
    assert sum(each.offset for each in committed.values()) == 4
