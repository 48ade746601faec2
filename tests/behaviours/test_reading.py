"""Consumers on their own: reading, moving about, holding back, ends and times, tables."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from millstream import Admin, AsyncConsumer, Consumer, Producer, read_topic
from millstream.errors import (
    ClientClosed,
    InvalidArgument,
    MillstreamError,
    NoOffsetForPartition,
    OffsetOutOfRangeWithoutReset,
    SerializationFailed,
    UnknownTopicOrPartition,
    Wakeup,
)
from tests.behaviours.clusters import at
from tests.behaviours.polling import PATIENCE, read, read_async, reader, values
from tests.waiting import until

if TYPE_CHECKING:
    from millstream import ConsumerRecord
    from tests.behaviours.clusters import Cluster


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_from_the_middle_of_a_batch(cluster: Cluster, codec: str) -> None:
    topic = cluster.topic()
    (partition,) = at(topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.address, "compression.type": codec, "linger.ms": 200}
    )
    for number in range(100):
        producer.produce(topic, b"v%d" % number)
    assert producer.flush(PATIENCE) == 0

    with reader(cluster, topic) as consumer:
        consumer.seek(partition, 55)
        records = read(consumer, 45)
        assert consumer.position(partition) == 100

    assert [each.offset for each in records] == list(range(55, 100))
    assert values(records) == [b"v%d" % n for n in range(55, 100)]


def test_a_record_has_everything_that_was_sent(cluster: Cluster) -> None:
    topic = cluster.topic(2, retention_ms="-1")
    with Producer(cluster.address) as producer:
        producer.send(
            topic,
            b"v",
            key=b"k",
            partition=1,
            timestamp=123_456,
            headers=[("h", b"1"), ("h", None)],
        )
        producer.send(topic, None, partition=1)

    with reader(cluster, topic, 1) as consumer:
        first, second = read(consumer, 2)

    assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 123_456)
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    assert (second.key, second.value, list(second.headers)) == (None, None, [])


def test_loops_and_polls_take_each_other_up(cluster: Cluster) -> None:
    topic = cluster.filled(20)
    (partition,) = at(topic)

    with reader(cluster, topic, max_poll_records=4) as consumer:
        first = [each.value for each in islice(consumer, 3)]
        assert consumer.position(partition) == 3
        polled = consumer.poll(PATIENCE)
        assert 1 <= len(polled) <= 4
        rest = [each.value for batch in consumer.batches(1.0, max_records=5) for each in batch]

    assert first + values(polled) + rest == [b"v%d" % number for number in range(20)]


def test_moving_about_inside_a_loop_takes_effect_with_the_next_record(cluster: Cluster) -> None:
    topic = cluster.filled(20, partitions=2)
    first, second = at(topic, 0, 1)
    seen: list[tuple[int, int]] = []

    with reader(cluster, topic, 0, 1) as consumer:
        consumer.pause([second])
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 2:
                consumer.seek(first, 7)
            if len(seen) == 4:
                consumer.pause([first])
                consumer.resume([second])
            if len(seen) == 6:
                break
        assert consumer.position(first) == 9
        assert consumer.position(second) == 2

    assert seen == [(0, 0), (0, 1), (0, 7), (0, 8), (1, 0), (1, 1)]


def test_a_poll_that_finds_nothing_ends_in_time(cluster: Cluster) -> None:
    topic = cluster.topic()

    with reader(cluster, topic) as consumer:
        assert consumer.poll(0.0) == []
        assert consumer.poll(0.2) == []
        cluster.write(topic, [b"late"])
        assert values(consumer.poll(PATIENCE)) == [b"late"]


def test_seeking_by_offset_time_and_ends(cluster: Cluster) -> None:
    topic = cluster.timed()
    (partition,) = at(topic)

    with reader(cluster, topic) as consumer:
        assert consumer.position(partition) == 0
        consumer.seek(partition, 7)
        assert consumer.position(partition) == 7
        assert [each.offset for each in read(consumer, 3)] == [7, 8, 9]
        consumer.seek_to_beginning()
        assert read(consumer, 10)[0].offset == 0
        consumer.seek_to_end([partition])
        assert consumer.position(partition) == 10
        assert consumer.poll(0.2) == []
        consumer.seek_to_time(datetime.fromtimestamp(3.5, UTC))
        assert consumer.poll(PATIENCE)[0].offset == 4
        with pytest.raises(InvalidArgument):
            consumer.seek(partition, -1)
        with pytest.raises(InvalidArgument, match="not assigned"):
            consumer.seek(at(topic, 5)[0], 0)


def test_ends_times_and_lag(cluster: Cluster) -> None:
    topic = cluster.timed()
    (partition,) = at(topic)

    with reader(cluster, topic) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: 2_001})[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (3, 3_000)
        assert consumer.offsets_for_times({partition: 99_000}) == {partition: None}
        assert consumer.offsets_for_times({}) == {}
        assert consumer.lag(partition) == 10
        read(consumer, 10)
        assert consumer.lag(partition) == 0
        with pytest.raises(MillstreamError):
            consumer.end_offsets(at(topic, 9), timeout=1.0)


def test_partitions_are_told_as_they_can_be_assigned(cluster: Cluster) -> None:
    topic = cluster.topic(3)

    async def ask() -> object:
        async with AsyncConsumer(cluster.address) as consumer:
            return await consumer.partitions_for(topic)

    with Consumer(cluster.address) as consumer:
        assert consumer.partitions_for(topic) == at(topic, 0, 1, 2)
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic"):
            consumer.partitions_for(cluster.new_name("missing"))
    assert asyncio.run(ask()) == at(topic, 0, 1, 2)


def test_times_are_looked_up_in_many_partitions_at_once(cluster: Cluster) -> None:
    topic = cluster.topic(3, retention_ms="-1")
    with Producer(cluster.address) as producer:
        for partition in range(3):
            for step in range(3):
                producer.send(topic, b"v", partition=partition, timestamp=1000 * (partition + step))

    with reader(cluster, topic, 0, 1, 2) as consumer:
        found = consumer.offsets_for_times(dict.fromkeys(at(topic, 0, 1, 2), 2_000))

    offsets = {each.partition: place and place.offset for each, place in found.items()}
    assert offsets == {0: 2, 1: 1, 2: 0}


def test_paused_partitions_wait_and_lose_nothing(cluster: Cluster) -> None:
    topic = cluster.filled(40, partitions=2)
    first, second = at(topic, 0, 1)

    with reader(cluster, topic, 0, 1, max_poll_records=3) as consumer:
        seen = read(consumer, 3)
        consumer.pause([first])
        assert consumer.paused() == {first}
        for _ in range(10):
            records = consumer.poll(0.2)
            assert {each.partition for each in records} <= {1}
            seen += records
        consumer.resume([first])
        seen += read(consumer, 40 - len(seen))
        assert consumer.assignment() == {first, second}

    assert sorted(values(seen)) == sorted(b"v%d" % number for number in range(40))


def test_where_to_begin_without_an_offset(cluster: Cluster) -> None:
    topic = cluster.filled(3)
    (partition,) = at(topic)

    with Consumer(cluster.address, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        assert consumer.position(partition) == 3
        cluster.write(topic, [b"new"])
        assert values(consumer.poll(PATIENCE)) == [b"new"]
    with Consumer(
        cluster.address, auto_offset_reset="none", group_id=cluster.new_name("g")
    ) as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffsetForPartition):
            consumer.poll(PATIENCE)
        consumer.seek(partition, 1)
        assert consumer.poll(PATIENCE)[0].offset == 1
        consumer.seek(partition, 999)
        with pytest.raises(OffsetOutOfRangeWithoutReset):
            consumer.poll(PATIENCE)


def test_an_offset_that_is_gone_is_reset(cluster: Cluster) -> None:
    topic = cluster.filled(10)
    (partition,) = at(topic)
    with Admin(cluster.address) as admin:
        assert admin.delete_records({partition: 6}).raise_first()[partition] == 6

    with reader(cluster, topic) as consumer:
        consumer.seek(partition, 2)
        assert consumer.poll(PATIENCE)[0].offset == 6
        consumer.seek(partition, 5_000)
        assert consumer.poll(PATIENCE)[0].offset == 6
        assert consumer.beginning_offsets([partition]) == {partition: 6}


def test_records_larger_than_a_fetch_are_read(cluster: Cluster) -> None:
    topic = cluster.topic(max_message_bytes="3000000")
    large = [bytes([65 + number]) * 1_500_000 for number in range(3)]
    cluster.write(topic, large, max_request_size=3_000_000, batch_size=1000)

    with reader(cluster, topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as consumer:
        assert values(read(consumer, 3)) == large


def test_holes_in_a_compacted_topic_are_passed(cluster: Cluster) -> None:
    segment_ms = 100
    topic = cluster.topic(
        cleanup_policy="compact", segment_ms=str(segment_ms), min_cleanable_dirty_ratio="0.01"
    )
    (partition,) = at(topic)
    with Producer(cluster.address) as producer:
        for number in range(10):
            producer.send(topic, b"v%d" % number, key=b"%d" % (number % 2))
        producer.flush()

        def is_clean() -> bool:
            # The newest segment is never cleaned, so there has to be another.
            producer.send(topic, b"last", key=b"last").result(PATIENCE)
            offsets = read_topic(cluster.address, topic, columns=["offset"]).to_arrow()["offset"]
            return 0 not in offsets.to_pylist()

        until(is_clean, look_seconds=1.5 * segment_ms / 1000)
        last = producer.send(topic, b"last", key=b"last").result(PATIENCE).offset

    with reader(cluster, topic) as consumer:
        seen: dict[bytes | None, int] = {}
        while consumer.position(partition) <= last:
            seen |= {each.key: each.offset for each in consumer.poll(PATIENCE)}
        consumer.seek(partition, 1)
        assert consumer.poll(PATIENCE)[0].offset > 1

    assert seen == {b"0": 8, b"1": 9, b"last": last}


def test_another_assignment_drops_what_was_fetched_for_the_first(cluster: Cluster) -> None:
    first, second = cluster.filled(10), cluster.filled(3)

    with reader(cluster, first, max_poll_records=1) as consumer:
        consumer.poll(PATIENCE)
        consumer.assign(at(second))
        assert {each.topic for each in read(consumer, 3)} == {second}
        consumer.unsubscribe()
        assert not consumer.assignment()


def test_a_topic_that_does_not_exist_yet_is_waited_for(cluster: Cluster) -> None:
    name = cluster.new_name("later")

    with Consumer(
        cluster.address,
        name,
        group_id=cluster.new_name("g"),
        auto_offset_reset="earliest",
        metadata_max_age=0.3,
        allow_auto_create_topics=False,
    ) as consumer:
        assert consumer.poll(0.3) == []
        cluster.topic(name=name)
        cluster.write(name, [b"here"])
        assert values(read(consumer, 1)) == [b"here"]


def test_a_value_that_cannot_be_read_is_told_and_can_be_passed_over(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.write(topic, [b'{"a": 1}', b"not json", b"2"])
    (partition,) = at(topic)

    with reader(cluster, topic, value_deserializer="json") as consumer:
        assert consumer.poll(PATIENCE)[0].value == {"a": 1}
        for _ in range(2):
            with pytest.raises(SerializationFailed, match="seek to 2"):
                consumer.poll(PATIENCE)
        consumer.seek(partition, 2)
        assert consumer.poll(PATIENCE)[0].value == 2


def test_interceptors_see_records_and_commits(cluster: Cluster) -> None:
    topic = cluster.filled(4)
    (partition,) = at(topic)
    committed: list[Any] = []

    class Even:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [each for each in records if each.offset % 2 == 0]

        def on_commit(self, offsets: Any) -> None:
            committed.append(offsets)

    with reader(
        cluster,
        topic,
        interceptors=[Even()],
        group_id=cluster.new_name("g"),
        enable_auto_commit=False,
    ) as consumer:
        assert [each.offset for each in read(consumer, 2)] == [0, 2]
        consumer.commit({partition: 4})

    assert [each[partition].offset for each in committed] == [4]


def test_the_asyncio_client_reads_seeks_and_wakes(cluster: Cluster) -> None:
    topic = cluster.timed()
    (partition,) = at(topic)

    async def main() -> None:
        async with AsyncConsumer(cluster.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 4:
                    break
            assert await consumer.position(partition) == 4
            seen += [each.offset for each in await read_async(consumer, 6)]
            assert seen == list(range(10))
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = await consumer.offsets_for_times({partition: 5_000})
            assert found[partition].offset == 5  # type: ignore[union-attr]  # it is there
            consumer.seek_to_time(8_000)
            batch = await consumer.poll_arrow(PATIENCE, columns=["offset"])
            assert batch is not None
            assert batch.to_arrow()["offset"].to_pylist() == [8, 9]
            polling = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0)
            consumer.wakeup()
            with pytest.raises(Wakeup):
                await polling
            polling = asyncio.create_task(consumer.poll(PATIENCE))
            await asyncio.sleep(0)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
        with pytest.raises(ClientClosed):
            await consumer.poll()

    asyncio.run(asyncio.wait_for(main(), 60))
