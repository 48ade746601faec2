"""Aggregations into topics: what the output modes write, and batches written by a function.

A topic keeps what was written before. So `complete` appends the whole result, every time; `update`
is for a function of batches, since Spark lets sinks in Python append only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.test_sink_batch import committed_values
from tests.spark.test_sink_stream import Job, forget_commit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


class Counting:
    """Counts the values of files, into a topic."""

    def __init__(self, job: Job, home: Path, broker: EmbeddedBroker, topic: str) -> None:
        self.job = job
        self.checkpoint = home / "counting"
        self._broker = broker
        self.topic = topic

    def options(self, **more: str) -> dict[str, Any]:
        return {
            "kafka.bootstrap.servers": self._broker.bootstrap_servers,
            "topic": self.topic,
            **more,
        }

    def counts(self) -> DataFrame:
        counted = self.job.rows().groupBy("key").count()
        return counted.selectExpr("key", "concat(key, '=', count) AS value")

    def run(self, writer: DataStreamWriter) -> None:
        located = writer.option("checkpointLocation", str(self.checkpoint))
        located.trigger(availableNow=True).start().awaitTermination()

    def written(self, topic: str | None = None) -> list[str]:
        return [each.decode() for each in committed_values(self._broker, topic or self.topic)]


@pytest.fixture
def counting(
    spark: SparkSession,
    tmp_path: Path,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
) -> Counting:
    topic = millstream_topic("counts")
    job = Job(spark, tmp_path, millstream_broker, topic)
    return Counting(job, tmp_path, millstream_broker, topic)


def test_complete_appends_the_whole_result_of_every_batch_once(counting: Counting) -> None:
    def run() -> None:
        writer = counting.counts().writeStream.format("millstream").outputMode("complete")
        counting.run(writer.options(**counting.options(delivery="exactly-once")))

    counting.job.give("0.json", ["a", "b"])
    counting.job.give("1.json", ["a"])
    run()
    assert counting.written() == ["a=1", "a=2", "b=1", "b=1"]

    forget_commit(counting.checkpoint, 1)
    run()
    assert counting.written() == ["a=1", "a=2", "b=1", "b=1"]


def test_spark_refuses_update_for_sinks_in_python(counting: Counting) -> None:
    counting.job.give("0.json", ["a"])
    writer = counting.counts().writeStream.format("millstream").outputMode("update")

    with pytest.raises(Exception, match=r"(?i)update"):
        counting.run(writer.options(**counting.options()))

    assert counting.written() == []


def test_a_function_of_batches_writes_what_was_updated_once_if_it_gives_names(
    counting: Counting, millstream_topic: TopicFactory
) -> None:
    once = millstream_topic("once")

    def write(rows: DataFrame, batch_id: int) -> None:
        named = {"topic": once, "delivery": "exactly-once", "writeId": once, "batchId": batch_id}
        for options in (counting.options(), counting.options() | named):
            rows.write.format("millstream").mode("append").options(**options).save()

    def run() -> None:
        counting.run(counting.counts().writeStream.outputMode("update").foreachBatch(write))

    counting.job.give("0.json", ["a", "b"])
    counting.job.give("1.json", ["a"])
    run()
    assert counting.written() == counting.written(once) == ["a=1", "a=2", "b=1"]

    forget_commit(counting.checkpoint, 1)
    run()
    assert counting.written() == ["a=1", "a=2", "a=2", "b=1"]
    assert counting.written(once) == ["a=1", "a=2", "b=1"]
