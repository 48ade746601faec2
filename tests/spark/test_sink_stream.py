"""`.writeStream.format("millstream")` with Spark and a broker: restarts, refusals, groups.

A driver that died before Spark knew that a batch is done is made by taking the batch out of the
checkpoint's log of commits: that is all that is missing then.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import millstream
from tests.spark.test_sink_batch import committed_values

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

SHUFFLED = "spark.sql.shuffle.partitions"


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Take a batch out of a checkpoint's log of commits."""
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


class Job:
    """A stream of files to a topic, run until there is nothing left to do."""

    def __init__(self, spark: SparkSession, home: Path, broker: EmbeddedBroker, topic: str) -> None:
        self._spark = spark
        self._home = home
        self._broker = broker
        self._topic = topic
        self._input = home / "input"
        self._input.mkdir()
        self._given = 1_700_000_000

    def give(self, name: str, values: list[str]) -> None:
        """A file of rows, which is a batch of its own."""
        rows = (json.dumps({"key": value, "value": value}) for value in values)
        path = self._input / name
        path.write_text("\n".join(rows))
        # Batches are in the order of files, and two may be written in the same millisecond.
        self._given += 1
        os.utime(path, (self._given, self._given))

    def run(self, tasks: int | None = 2, **options: object) -> None:
        """One life of the driver; without a number of tasks Spark's setting says how many."""
        rows = self.rows()
        spread = rows.repartition("key") if tasks is None else rows.repartition(tasks, "key")
        writer = (
            spread.writeStream.format("millstream")
            .option("kafka.bootstrap.servers", self._broker.bootstrap_servers)
            .option("topic", self._topic)
            .option("checkpointLocation", str(self._home / "checkpoint"))
            .options(**{name: str(value) for name, value in options.items()})
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def rows(self) -> DataFrame:
        """The input as a stream."""
        reader = self._spark.readStream.schema("key string, value string")
        return reader.option("maxFilesPerTrigger", 1).json(str(self._input))

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died before it noted that a batch is done."""
        forget_commit(self._home / "checkpoint", batch)

    def committed(self) -> list[str]:
        """What readers see."""
        return [value.decode() for value in committed_values(self._broker, self._topic)]


@pytest.fixture
def job(
    spark: SparkSession,
    tmp_path: Path,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
) -> Job:
    return Job(spark, tmp_path, millstream_broker, millstream_topic("stream", partitions=2))


def test_a_batch_that_is_run_again_is_written_again_unless_exactly_once_is_asked_for(
    job: Job,
) -> None:
    job.give("0.json", ["a", "b", "c"])
    job.run()
    job.forget_commit(0)
    job.run()
    assert job.committed() == ["a", "a", "b", "b", "c", "c"]


def test_exactly_once_a_batch_that_is_run_again_is_not_written_again(job: Job) -> None:
    job.give("0.json", ["a", "b", "c", "d", "e"])
    job.run(delivery="exactly-once")
    job.forget_commit(0)
    job.give("1.json", ["x", "y"])

    job.run(delivery="exactly-once")

    assert job.committed() == ["a", "b", "c", "d", "e", "x", "y"]


def test_rows_that_changed_before_a_batch_is_run_again_stop_the_query(job: Job) -> None:
    job.give("0.json", ["a", "b", "c", "d"])
    job.run(delivery="exactly-once")
    job.forget_commit(0)
    job.give("0.json", ["a", "b", "c", "q"])

    with pytest.raises(Exception, match="is written already, but not with these rows"):
        job.run(delivery="exactly-once")
    job.run(delivery="exactly-once", fingerprint="none")

    assert job.committed() == ["a", "b", "c", "d"]


def test_a_batch_that_other_tasks_had_begun_stops_the_query(job: Job) -> None:
    # With three tasks none of these keys is task 0's; with one task all of them are.
    keys = ["b", "c", "d", "e"]
    job.give("0.json", keys)
    job.run(tasks=3, delivery="exactly-once")
    job.forget_commit(0)

    with pytest.raises(Exception, match="batch 0 was begun before with other tasks"):
        job.run(tasks=1, delivery="exactly-once")


def test_the_checkpoint_keeps_the_number_of_shuffled_tasks_of_a_batch(
    job: Job, spark: SparkSession
) -> None:
    keys = ["a", "b", "c", "d", "e", "f"]
    job.give("0.json", keys)
    job.run(tasks=None, delivery="exactly-once")
    job.forget_commit(0)
    before = spark.conf.get(SHUFFLED)
    spark.conf.set(SHUFFLED, "5")
    try:
        job.run(tasks=None, delivery="exactly-once")
    finally:
        spark.conf.set(SHUFFLED, str(before))

    assert job.committed() == keys


def test_a_batch_function_writes_once_under_a_name_and_the_batchs_number(
    job: Job, millstream_broker: EmbeddedBroker, tmp_path: Path, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("each")

    def write(rows: DataFrame, batch_id: int) -> None:
        options = {
            "kafka.bootstrap.servers": millstream_broker.bootstrap_servers,
            "topic": topic,
            "delivery": "exactly-once",
            "writeId": topic,
            "batchId": str(batch_id),
        }
        for _ in range(2):
            rows.write.format("millstream").mode("append").options(**options).save()

    job.give("0.json", ["a", "b"])
    writer = job.rows().writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "each")).start().awaitTermination()

    assert committed_values(millstream_broker, topic) == [b"a", b"b"]


def test_finished_batches_are_offsets_of_a_group(
    spark: SparkSession,
    tmp_path: Path,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
) -> None:
    from millstream.spark.group_offsets import commit_offsets_of

    source, group = millstream_topic("source", partitions=2), "watched"
    with millstream.Producer(millstream_broker.bootstrap_servers) as producer:
        for partition, count in ((0, 3), (1, 2)):
            for _ in range(count):
                producer.send(source, b"v", partition=partition)
    rows = spark.readStream.format("millstream").option("subscribe", source)
    rows = rows.option("kafka.bootstrap.servers", millstream_broker.bootstrap_servers)
    stream = rows.option("startingOffsets", "earliest").load().select("value")
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))

    query = writer.trigger(availableNow=True).start()
    listener = commit_offsets_of(query, group, millstream_broker.bootstrap_servers)
    query.awaitTermination()

    assert listener.wait(30)
    with millstream.Admin(millstream_broker.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets([group])[group]
    assert {place.partition: each.offset for place, each in offsets.items()} == {0: 3, 1: 2}
