"""Batches of the source against a real broker: what is read, from where to where."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from millstream import Admin, OffsetAndMetadata, Producer, TopicPartition
from millstream.client.admin import ConfigResource
from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, RecordsLost, UnknownTopicOrPartition
from millstream.spark import worker_clients
from millstream.spark.worker_clients import close_all
from millstream.testing.embedded import EmbeddedBroker
from tests.spark.source_world import HOUR_AGO_MS, SourceWorld, partition_of, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


@pytest.fixture
def start_ms() -> int:
    return SystemClock().wall_ms() - HOUR_AGO_MS


def test_every_column_is_as_it_was_written(
    world: SourceWorld, millstream_topic: TopicFactory, start_ms: int
) -> None:
    topic = millstream_topic("orders", partitions=2)
    with Producer(world.broker.bootstrap_servers) as producer:
        producer.send(topic, b"one", key=b"k", partition=0, timestamp=start_ms)
        headers = [("h", b"x"), ("n", None)]
        producer.send(topic, None, partition=1, timestamp=start_ms + 1, headers=headers)

    first, second = world.rows(subscribe=topic, includeHeaders="true")

    assert first == {
        "key": b"k",
        "value": b"one",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime.fromtimestamp(start_ms / 1000, UTC),
        "timestampType": 0,
        "headers": None,
    }
    assert second["key"] is None
    assert second["value"] is None
    assert second["partition"] == 1
    assert second["headers"] == [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]


def test_the_type_of_a_time_is_that_of_its_batch(
    world: SourceWorld, millstream_topic: TopicFactory, start_ms: int
) -> None:
    topic = millstream_topic("stamped")
    world.produce(topic, b"mine", timestamps=[start_ms])
    with Admin(world.broker.bootstrap_servers) as admin:
        resource = ConfigResource("topic", topic)
        change = {"message.timestamp.type": "LogAppendTime"}
        admin.incremental_alter_configs({resource: change}).raise_first()
    world.produce(topic, b"yours", timestamps=[start_ms])

    mine, yours = world.rows(subscribe=topic)

    assert (mine["timestampType"], yours["timestampType"]) == (0, 1)
    assert mine["timestamp"] < yours["timestamp"]


def test_a_narrower_schema_names_the_columns_and_their_order(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("narrow")
    world.produce(topic, b"a", b"b")
    narrow = StructType().add("offset", LongType()).add("value", BinaryType())

    assert world.rows(narrow, subscribe=topic) == [
        {"offset": 0, "value": b"a"},
        {"offset": 1, "value": b"b"},
    ]
    only_topic = StructType().add("topic", StringType())
    assert world.rows(only_topic, subscribe=topic) == [{"topic": topic}] * 2


def test_a_schema_that_does_not_fit_is_refused(world: SourceWorld) -> None:
    wrong = StructType().add("value", StringType()).add("amount", LongType())

    with pytest.raises(InvalidArgument, match=r"value is binary, not string.*amount: there is no"):
        world.batch(wrong, subscribe="x")


def test_topics_are_found_by_name_pattern_or_partition(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    red = millstream_topic("red", partitions=2)
    blue = millstream_topic("blue")
    world.produce(red, b"r0", partition=0)
    world.produce(red, b"r1", partition=1)
    world.produce(blue, b"b")

    assert world.values(subscribe=f"{red}, {blue}") == [b"b", b"r0", b"r1"]
    assert world.values(subscribePattern=f"({red}|blue.*)") == [b"b", b"r0", b"r1"]
    assert world.values(subscribePattern="re") == []
    assert world.values(assign=json.dumps({red: [1]})) == [b"r1"]
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'nowhere'"):
        world.values(subscribe="nowhere")
    with pytest.raises(UnknownTopicOrPartition, match=f"{red}-7"):
        world.values(assign=json.dumps({red: [7]}))


def test_offsets_say_where_to_begin_and_to_end(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("bounds", partitions=2)
    world.produce(topic, *(b"%d" % number for number in range(6)))
    world.produce(topic, b"x", partition=1)

    def bounds(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    assert world.values(
        subscribe=topic, startingOffsets=bounds(2, -2), endingOffsets=bounds(4, -1)
    ) == [b"2", b"3", b"x"]
    with pytest.raises(InvalidArgument, match=f"nothing is said of {topic}-1"):
        world.values(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    wide = json.dumps({topic: {"0": 1, "1": 1, "2": 1}})
    with pytest.raises(InvalidArgument, match=f"{topic}-2 are not among"):
        world.values(subscribe=topic, startingOffsets=wide)
    with pytest.raises(RecordsLost, match="the log now ends at 6"):
        world.values(subscribe=topic, endingOffsets=bounds(9, -1))


def test_times_say_where_to_begin_and_to_end(
    world: SourceWorld, millstream_topic: TopicFactory, start_ms: int
) -> None:
    topic = millstream_topic("times", partitions=2)
    times = [start_ms + 1000 * second for second in range(5)]
    world.produce(topic, b"0", b"1", b"2", b"3", b"4", timestamps=times)
    world.produce(topic, b"old", partition=1, timestamps=[start_ms])

    late = {"startingTimestamp": str(times[2]), "startingOffsetsByTimestampStrategy": "latest"}
    assert world.values(subscribe=topic, **late) == [b"2", b"3", b"4"]
    assert world.values(subscribe=topic, endingTimestamp=str(times[1])) == [b"0", b"old"]
    by_partition = json.dumps({topic: {"0": times[4], "1": start_ms}})
    assert world.values(subscribe=topic, startingOffsetsByTimestamp=by_partition) == [b"4", b"old"]
    with pytest.raises(InvalidArgument, match=f"no record of {topic}-1 is as new"):
        world.values(subscribe=topic, startingTimestamp=str(times[2]))


def test_a_group_says_where_to_begin(world: SourceWorld, millstream_topic: TopicFactory) -> None:
    topic = millstream_topic("grouped", partitions=2)
    world.produce(topic, b"0", b"1", b"2")
    world.produce(topic, b"x", partition=1)
    with Admin(world.broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {partition_of(topic): OffsetAndMetadata(2)})

    assert world.values(subscribe=topic, startingGroup="billing") == [b"2", b"x"]


def test_conditions_of_the_query_are_met_in_the_source(
    world: SourceWorld, millstream_topic: TopicFactory, start_ms: int
) -> None:
    topic = millstream_topic("filtered", partitions=2)
    # Times need not be in order: a late record lies behind newer ones.
    times = [start_ms, start_ms + 2000, start_ms + 1000, start_ms + 3000]
    world.produce(topic, b"0", b"2", b"1", b"3", timestamps=times)
    world.produce(topic, b"other", partition=1, timestamps=times[:1])
    at = [datetime.fromtimestamp(each / 1000, UTC) for each in times]

    def found(*filters: object) -> list[bytes]:
        rows = world.rows(filters=filters, subscribe=topic)  # type: ignore[arg-type]  # Spark's.
        assert world.unmet == []
        return [row["value"] for row in rows]

    assert found(EqualTo(("partition",), 1)) == [b"other"]
    assert found(EqualTo(("partition",), 0), GreaterThan(("offset",), 1)) == [b"1", b"3"]
    assert found(GreaterThanOrEqual(("timestamp",), at[2])) == [b"2", b"1", b"3"]
    assert found(LessThan(("timestamp",), at[1])) == [b"0", b"1", b"other"]
    only_value = StructType().add("value", BinaryType())
    assert world.rows(only_value, [LessThan(("timestamp",), at[2])], subscribe=topic) == [
        {"value": b"0"},
        {"value": b"other"},
    ]


def test_large_ranges_are_read_by_several_tasks(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("split")
    world.produce(topic, *(b"%d" % number for number in range(50)))

    several = world.batch(subscribe=topic, minPartitions="4")
    small = world.batch(subscribe=topic, maxRecordsPerPartition="7")

    assert len(several.partitions()) == 4
    assert len(small.partitions()) == 8
    assert [row["offset"] for row in read_all(small, small.partitions())] == list(range(50))


def test_nothing_is_read_of_nothing(world: SourceWorld, millstream_topic: TopicFactory) -> None:
    from pyspark.sql.datasource import InputPartition

    reader = world.batch(subscribe=millstream_topic("empty"))

    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_aborted_records_and_markers_are_passed_over(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("transactional")
    with Producer(world.broker.bootstrap_servers, transactional_id="s1") as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        producer.begin_transaction()
        producer.send(topic, b"dropped")
        producer.flush()
        producer.abort_transaction()

    committed = world.rows(subscribe=topic, kafka__isolation__level="read_committed")

    assert [(row["offset"], row["value"]) for row in committed] == [(0, b"kept")]
    assert world.values(subscribe=topic) == [b"kept", b"dropped"]
    # A range of nothing but what is hidden ends too.
    hidden = json.dumps({topic: {"0": 2}})
    assert (
        world.values(
            subscribe=topic, startingOffsets=hidden, kafka__isolation__level="read_committed"
        )
        == []
    )


def test_an_open_transaction_is_not_read_and_not_waited_for(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("open")
    world.produce(topic, b"before")
    with Producer(world.broker.bootstrap_servers, transactional_id="s1-open") as producer:
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()

        level = {"kafka__isolation__level": "read_committed"}
        assert world.values(subscribe=topic, **level) == [b"before"]
        producer.commit_transaction()

    assert world.values(subscribe=topic, **level) == [b"before", b"open"]


def test_a_compacted_topic_is_read_with_its_gaps() -> None:
    quick = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "100"}
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0",
        "max.compaction.lag.ms": "100",
    }
    with EmbeddedBroker(quick) as broker:
        world = SourceWorld(broker)
        broker.create_topic("compacted", 1, compacted)

        def offsets() -> list[int]:
            return [row["offset"] for row in world.rows(subscribe="compacted")]

        with Producer(broker.bootstrap_servers) as producer:
            for number in range(9):
                producer.send("compacted", b"%d" % number, key=b"%d" % (number % 3))
                producer.flush()
            deadline_ms = SystemClock().monotonic_ms() + 60_000
            while offsets()[0] < 6 and SystemClock().monotonic_ms() < deadline_ms:
                # A segment ends when something is written to it after its time.
                producer.send("compacted", b"x", key=b"x")
                producer.flush()

        *_, last = found = offsets()
        assert found[0] == 6
        from_the_gap = json.dumps({"compacted": {"0": 2}})
        rows = world.rows(subscribe="compacted", startingOffsets=from_the_gap)
        assert (rows[0]["offset"], rows[-1]["offset"]) == (6, last)
        to_the_gap = json.dumps({"compacted": {"0": 4}})
        assert world.rows(subscribe="compacted", endingOffsets=to_the_gap) == []
        close_all()


def delete_before(world: SourceWorld, topic: str, offset: int) -> None:
    with Admin(world.broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset}).raise_first()


def test_offsets_that_are_gone_fail_the_read_or_are_left_out(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("lossy")
    for number in range(6):
        world.produce(topic, b"%d" % number)
    delete_before(world, topic, 4)
    wanted = json.dumps({topic: {"0": 1}})

    with pytest.raises(RecordsLost, match=r"offsets 1 to 3 are gone, the log now begins at 4"):
        world.values(subscribe=topic, startingOffsets=wanted)

    lenient = {"startingOffsets": wanted, "failOnDataLoss": "false"}
    assert world.values(subscribe=topic, **lenient) == [b"4", b"5"]


def test_records_that_vanish_between_planning_and_reading_are_noticed(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("vanishing")
    for number in range(6):
        world.produce(topic, b"%d" % number)
    strict = world.batch(subscribe=topic)
    lenient = world.batch(subscribe=topic, failOnDataLoss="false")
    partitions = strict.partitions()
    delete_before(world, topic, 4)

    with pytest.raises(RecordsLost, match=r"offsets 0 to 3 are gone"):
        read_all(strict, partitions)

    assert [row["value"] for row in read_all(lenient, partitions)] == [b"4", b"5"]


def test_a_worker_keeps_its_reader_for_the_next_task_but_not_after_a_failure(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("kept")
    world.produce(topic, b"a", b"b")
    close_all()
    reader = world.batch(subscribe=topic, maxRecordsPerPartition="1")

    assert len(read_all(reader, reader.partitions())) == 2
    ((_, first),) = worker_clients._kept
    world.values(subscribe=topic)
    assert [kept for _, kept in worker_clients._kept] == [first]

    worker_clients.close(first)
    world.values(subscribe=topic)
    ((_, second),) = worker_clients._kept
    assert second is not first

    left_early = reader.read(reader.partitions()[0])
    next(left_early)
    assert worker_clients._kept == []
    left_early.close()  # type: ignore[attr-defined]  # A generator, as Spark knows too.
    assert [kept for _, kept in worker_clients._kept] == [second]

    for number in range(worker_clients.KEPT_MAX + 2):
        world.values(subscribe=topic, kafka__client__id=f"c{number}")
    assert len(worker_clients._kept) == worker_clients.KEPT_MAX


def test_a_task_that_hears_nothing_says_for_how_long(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("silent")
    world.produce(topic, b"a")
    reader = world.batch(subscribe=topic, kafkaConsumer__pollTimeoutMs="300")
    partitions = reader.partitions()
    world.broker.delete_topics(topic)

    with pytest.raises(TimeoutError, match=r"nothing arrived for 0.3 s, at offset 0"):
        read_all(reader, partitions)
    assert worker_clients._kept == []
