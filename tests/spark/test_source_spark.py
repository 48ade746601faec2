"""The source in Spark itself: found by its name, batches, streams, restarts, errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Producer
from millstream.clock import SystemClock
from tests.spark.source_world import HOUR_AGO_MS, SourceWorld

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> SourceWorld:
    return SourceWorld(millstream_broker)


def plan_of(frame: DataFrame) -> str:
    """What Spark is going to do."""
    execution: Any = frame._jdf.queryExecution()
    return str(execution.executedPlan().toString())


def test_a_topic_is_a_table_and_conditions_reach_the_source(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("table", partitions=2)
    with Producer(world.broker.bootstrap_servers) as producer:
        for number in range(20):
            key, value = b"%d" % (number % 3), b"v%d" % number
            producer.send(topic, value, key=key, partition=number % 2, headers=[("h", b"x")])
    table = spark.read.format("millstream").options(
        **world.options(subscribe=topic, includeHeaders="true")
    )
    frame = table.load()

    counted = frame.groupBy(frame.key.cast("string").alias("key")).count().collect()
    assert {row.key: row["count"] for row in counted} == {"0": 7, "1": 7, "2": 6}

    before = spark.conf.get(PUSHDOWN, "false")
    spark.conf.set(PUSHDOWN, "true")
    try:
        chosen = frame.where("partition = 1 and offset >= 8").select("value", "headers")
        assert not re.search(r"\bFilter\b", plan_of(chosen))
        rows = chosen.collect()
    finally:
        spark.conf.set(PUSHDOWN, str(before))
    assert [bytes(row.value) for row in rows] == [b"v17", b"v19"]
    assert rows[0].headers[0].key == "h"

    narrow = table.schema("offset BIGINT, topic STRING").load()
    assert sorted(row.offset for row in narrow.collect()) == sorted([*range(10), *range(10)])


def test_conditions_on_time_reach_the_source_and_bounds_of_time_are_met(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("times", partitions=2)
    start_ms = SystemClock().wall_ms() - HOUR_AGO_MS
    for partition in (0, 1):
        values = [b"%d-%d" % (partition, number) for number in range(6)]
        times = [start_ms + 1000 * number for number in range(6)]
        world.produce(topic, *values, partition=partition, timestamps=times)

    def read(**options: str) -> DataFrame:
        reader = spark.read.format("millstream").options(
            **world.options(subscribe=topic, **options)
        )
        return reader.load().selectExpr("cast(value as string) value", "timestamp")

    def values_of(frame: DataFrame) -> list[str]:
        return sorted(row.value for row in frame.collect())

    before = spark.conf.get(PUSHDOWN, "false")
    spark.conf.set(PUSHDOWN, "true")
    try:
        low, high = (f"timestamp_millis({start_ms + 1000 * number})" for number in (2, 4))
        chosen = read().where(f"timestamp >= {low} and timestamp < {high}")
        assert not re.search(r"\bFilter\b", plan_of(chosen))
        assert values_of(chosen) == ["0-2", "0-3", "1-2", "1-3"]
    finally:
        spark.conf.set(PUSHDOWN, str(before))

    def at(first: int, second: int) -> str:
        times = {"0": start_ms + 1000 * first, "1": start_ms + 1000 * second}
        return json.dumps({topic: times})

    bounded = read(startingOffsetsByTimestamp=at(1, 4), endingOffsetsByTimestamp=at(3, 9))
    assert values_of(bounded) == ["0-1", "0-2", "1-4", "1-5"]


def drain(query: StreamingQuery) -> list[Any]:
    """Wait until a query that ends by itself has ended; its progress."""
    assert query.awaitTermination(90)
    return [each for each in query.recentProgress if each.numInputRows]


def test_a_stream_goes_on_from_its_checkpoint_and_reports_its_lag(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory, tmp_path: Any
) -> None:
    topic = millstream_topic("stream", partitions=2)
    checkpoint, output = str(tmp_path / "checkpoint"), str(tmp_path / "output")
    options = world.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")

    def run() -> list[Any]:
        frame = spark.readStream.format("millstream").options(**options).load()
        writing = frame.selectExpr("cast(value as string) value", "partition", "offset").writeStream
        started = writing.format("parquet").option("checkpointLocation", checkpoint)
        return drain(started.trigger(availableNow=True).start(output))

    world.produce(topic, *(b"a%d" % number for number in range(4)))
    world.produce(topic, b"b0", b"b1", partition=1)
    first = run()
    world.produce(topic, b"a4", b"a5")
    second = run()

    assert [each.numInputRows for each in first] == [4, 2]
    source = first[0].sources[0]
    assert json.loads(source.latestOffset) == {topic: {"0": 4, "1": 2}}
    behind = {
        number: json.loads(source.latestOffset)[topic][number] - at
        for number, at in json.loads(source.endOffset)[topic].items()
    }
    assert sum(behind.values()) == 2
    assert source.metrics == {}  # Spark asks sources in Python for none: topics/spark-source.md.
    assert [each.numInputRows for each in second] == [2]
    read = spark.read.parquet(output).orderBy("partition", "offset").collect()
    assert [row.value for row in read] == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]


def test_a_continuous_query_reads_what_arrives_and_fails_with_the_facts(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory, checkpoint: str
) -> None:
    topic = millstream_topic("live")
    options = world.options(subscribe=topic, kafka__isolation__level="read_committed")
    frame = spark.readStream.format("millstream").options(**options).load()
    seen: list[bytes] = []

    def note(batch: DataFrame, _number: int) -> None:
        seen.extend(bytes(row.value) for row in batch.collect())

    query = frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        with Producer(world.broker.bootstrap_servers, transactional_id="live") as producer:
            with producer.transaction():
                producer.send(topic, b"kept")
            producer.begin_transaction()
            producer.send(topic, b"dropped")
            producer.flush()
            producer.abort_transaction()
        query.processAllAvailable()
        assert seen == [b"kept"]

        world.broker.delete_topics(topic)
        world.broker.create_topic(topic, 1)
        with pytest.raises(Exception, match=r"the log now ends at 0.*failOnDataLoss=false"):
            query.awaitTermination(90)
    finally:
        query.stop()


def test_what_is_wrong_with_options_is_told_before_anything_runs(
    world: SourceWorld, spark: SparkSession
) -> None:
    wrong = spark.read.format("millstream").options(subscribes="x", minPartitions="none")

    with pytest.raises(Exception, match=r"did you mean subscribe\?") as caught:
        wrong.load().collect()

    assert "kafka.bootstrap.servers: missing" in str(caught.value)
    assert "minPartitions='none': must be a whole number" in str(caught.value)
