"""`.write.format("millstream")` with Spark and a broker: columns, types, refusals, writing once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def write(millstream_broker: EmbeddedBroker) -> Callable[..., None]:
    def save(rows: DataFrame, mode: str = "append", **options: object) -> None:
        writer = rows.write.format("millstream").mode(mode)
        writer = writer.option("kafka.bootstrap.servers", millstream_broker.bootstrap_servers)
        writer.options(**{name: str(value) for name, value in options.items()}).save()

    return save


def committed_values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """The values of a topic that a reader of committed records sees, sorted."""
    read = millstream.read_topic(
        broker.bootstrap_servers, topic, columns=["value"], isolation_level="read_committed"
    )
    return sorted(read.to_arrow().column("value").to_pylist())


def test_every_column_of_a_record_is_written(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    write: Callable[..., None],
) -> None:
    one, two = millstream_topic("one", partitions=2), millstream_topic("two")
    rows = spark.sql(f"""
        SELECT * FROM VALUES
          ('{one}', 'k', binary('v'), 1, timestamp '2026-01-02 03:04:05.678',
           array(named_struct('key', 'h', 'value', binary('x'))), 1L),
          ('{one}', null, null, 0, null, null, 2L),
          ('{two}', 'n', binary(''), null, null, array(), 3L)
        AS t(topic, key, value, partition, timestamp, headers, ignored)
    """)

    write(rows)

    with millstream.Consumer(millstream_broker.bootstrap_servers) as consumer:
        consumer.assign([millstream.TopicPartition(one, n) for n in (0, 1)])
        consumer.seek_to_beginning()
        found = {record.partition: record for record in _take(consumer, 2)}
    assert (found[1].key, found[1].value, found[1].timestamp) == (b"k", b"v", 1767323045678)
    assert list(found[1].headers) == [("h", b"x")]
    assert (found[0].key, found[0].value, list(found[0].headers)) == (None, None, [])
    assert committed_values(millstream_broker, two) == [b""]


def _take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(10)
    return found


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("'t' topic, 1 value", {}, r"value attribute unsupported type int\. value must be a\(n\)"),
        ("'a' value", {}, "topic option required when no 'topic' attribute is present"),
        ("'a' value", {"topic": "t", "topics": "u"}, "there is no such option; did you mean topic"),
        ("'a' value", {"topic": "t", "mode": "overwrite"}, "a topic cannot be overwritten"),
        ("'a' value", {"topic": "t", "delivery": "exactly-once"}, "writeId: missing"),
        ("'a' value, cast(null as string) topic", {}, "null topic present in the data"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    spark: SparkSession,
    write: Callable[..., None],
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.sql(f"SELECT {columns}"), **options)


def test_a_batch_with_a_name_is_written_once_however_often_it_is_run(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    write: Callable[..., None],
) -> None:
    topic = millstream_topic("named", partitions=2)
    rows = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) key", "cast(id as string) value")
    options = {"topic": topic, "delivery": "exactly-once", "writeId": topic}

    write(rows, **options, batchId=1)
    write(rows, **options, batchId=1)
    with pytest.raises(Exception, match="is written already, but not with these rows: 10 rows"):
        write(rows.where("id < 15"), **options, batchId=1)
    with pytest.raises(Exception, match="batch 1 is written already"):
        write(rows, **options, batchId=0)

    assert committed_values(millstream_broker, topic) == sorted(b"%d" % n for n in range(20))


def test_a_batch_of_no_rows_writes_nothing(
    spark: SparkSession,
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    write: Callable[..., None],
) -> None:
    topic = millstream_topic("empty")

    write(
        spark.sql("SELECT 'a' value WHERE false"),
        topic=topic,
        delivery="exactly-once",
        writeId=topic,
    )

    assert committed_values(millstream_broker, topic) == []
