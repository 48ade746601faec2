"""Producers: what is sent is there for others to read, and what is not there is told."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream import AsyncProducer, Producer, ProducerInterceptor, ProducerRecord
from millstream.errors import (
    ClientClosed,
    DeliveryFailed,
    InvalidArgument,
    MessageTooLarge,
    UnknownTopicOrPartition,
)
from millstream.records import partition_for_key
from tests.integration.client.producer.reading import read_all

if TYPE_CHECKING:
    from millstream import RecordMetadata
    from tests.behaviours.clusters import Cluster

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

PATIENCE = 30


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_all_kinds_of_acks(cluster: Cluster, acks: Any) -> None:
    topic = cluster.topic()

    with Producer(cluster.address, acks=acks) as producer:
        places = [producer.send(topic, b"%d" % n).result(PATIENCE) for n in range(3)]

    assert [each.offset for each in places] == ([-1] * 3 if acks == 0 else [0, 1, 2])
    assert [each.value for each in read_all(cluster.address, topic)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_understood(cluster: Cluster, codec: Any) -> None:
    topic = cluster.topic(3)

    with Producer(cluster.address, compression_type=codec, batch_size=3000) as producer:
        sent = [producer.send(topic, b"%d" % n * 20, key=b"%d" % (n % 9)) for n in range(500)]
        places = [each.result(PATIENCE) for each in sent]

    seen = {(each.partition, each.offset): each.value for each in read_all(cluster.address, topic)}
    assert len(seen) == 500
    for number, place in enumerate(places):
        assert place.partition == partition_for_key(b"%d" % (number % 9), 3)
        assert seen[place.partition, place.offset] == b"%d" % number * 20


def test_keys_headers_and_times_arrive_as_they_were_given(cluster: Cluster) -> None:
    topic = cluster.topic(3)
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)

    with Producer(cluster.address) as producer:
        plain = producer.send(topic, "text", key="key", headers={"a": b"1", "none": None})
        timed = producer.send(topic, b"timed", timestamp=when, headers=[("a", "x"), ("a", "y")])
        producer.send(topic, None, key=b"tombstone")
        producer.send(topic, b"")
        places = plain.result(PATIENCE), timed.result(PATIENCE)

    by_value = {each.value: each for each in read_all(cluster.address, topic)}
    assert by_value[b"text"].headers == [("a", b"1"), ("none", None)]
    assert by_value[b"text"].key == b"key"
    assert by_value[b"text"].timestamp == places[0].timestamp
    assert by_value[b"timed"].timestamp == places[1].timestamp == int(when.timestamp() * 1000)
    assert by_value[b"timed"].headers == [("a", b"x"), ("a", b"y")]
    assert by_value[b"timed"].key is None
    assert by_value[None].key == b"tombstone"
    assert b"" in by_value


def test_a_topic_that_takes_the_brokers_time_tells_that_time(cluster: Cluster) -> None:
    topic = cluster.topic(message_timestamp_type="LogAppendTime")

    with Producer(cluster.address) as producer:
        place = producer.send(topic, b"v", timestamp=1_000).result(PATIENCE)

    (seen,) = read_all(cluster.address, topic)
    assert place.timestamp == seen.timestamp > 1_000


def test_order_is_kept_whatever_may_be_in_flight(cluster: Cluster) -> None:
    for in_flight in (1, 5):
        topic = cluster.topic()
        with Producer(
            cluster.address,
            max_in_flight_requests_per_connection=in_flight,
            batch_size=200,
            linger=0,
        ) as producer:
            sent = [producer.send(topic, b"%05d" % number) for number in range(1000)]
            producer.flush(PATIENCE)
            assert all(each.done() for each in sent)

        values = [each.value for each in read_all(cluster.address, topic)]
        assert values == [b"%05d" % number for number in range(1000)]


def test_records_without_keys_reach_every_partition(cluster: Cluster) -> None:
    topic = cluster.topic(4)

    with Producer(cluster.address, batch_size=500) as producer:
        for _ in range(1000):
            producer.send(topic, b"x" * 50)

    assert {each.partition for each in read_all(cluster.address, topic)} == {0, 1, 2, 3}


def test_partitions_are_chosen_in_turn_by_functions_and_by_hand(cluster: Cluster) -> None:
    topic = cluster.topic(3)

    with Producer(cluster.address, partitioner="round_robin") as producer:
        in_turn = [producer.send(topic, b"v").result(PATIENCE).partition for _ in range(6)]
    with Producer(
        cluster.address, partitioner=lambda _topic, _key, value, found: value[0] % found.count
    ) as producer:
        chosen = [producer.send(topic, bytes([n])).result(PATIENCE).partition for n in (5, 6)]
    with Producer(cluster.address) as producer:
        by_hand = producer.send(topic, b"v", key=b"k", partition=2).result(PATIENCE)
        assert [each.index for each in producer.partitions_for(topic)] == [0, 1, 2]
        with pytest.raises(InvalidArgument):
            producer.send(topic, b"v", partition=-2)

    assert in_turn == [0, 1, 2, 0, 1, 2]
    assert chosen == [2, 0]
    assert by_hand.partition == 2


def test_large_records_pass_and_too_large_ones_are_told_at_once(cluster: Cluster) -> None:
    topic = cluster.topic(max_message_bytes="3000000")
    large = bytes(range(256)) * 8_000

    with Producer(cluster.address, max_request_size=3_000_000) as producer:
        producer.send(topic, large).result(PATIENCE)
        with pytest.raises(MessageTooLarge):
            producer.send(topic, large * 2)

    assert [each.value for each in read_all(cluster.address, topic)] == [large]


def test_too_large_batches_go_in_parts_and_what_the_broker_refuses_is_told(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(max_message_bytes="4000")

    with Producer(cluster.address, linger=0.05) as producer:
        sent = [producer.send(topic, b"%04d" % n + b"x" * 100) for n in range(200)]
        lost = producer.send(topic, b"x" * 5000)
        offsets = [each.result(PATIENCE).offset for each in sent]
        assert isinstance(lost.exception(PATIENCE), MessageTooLarge)
        assert producer.send(topic, b"after").result(PATIENCE).offset == 200

    assert offsets == list(range(200))


def test_losses_that_nobody_has_looked_at_are_raised_by_flush(cluster: Cluster) -> None:
    topic = cluster.topic(max_message_bytes="1000")

    with Producer(cluster.address) as producer:
        producer.send(topic, b"x" * 2000)
        with pytest.raises(DeliveryFailed):
            producer.flush(PATIENCE)
        looked_at = producer.send(topic, b"x" * 2000)
        assert looked_at.exception(PATIENCE) is not None
        producer.flush(PATIENCE)


def test_tables_are_spread_by_their_keys_as_records_are(cluster: Cluster) -> None:
    topic = cluster.topic(3)
    table = pa.table(
        {
            "key": [b"%d" % n for n in range(2000)],
            "value": [b"v%d" % n for n in range(2000)],
            "timestamp": [1_700_000_000_000 + n for n in range(2000)],
        }
    )

    with Producer(cluster.address, batch_size=3000, compression_type="lz4") as producer:
        ranges = producer.send_batch(topic, table).result(PATIENCE)

    seen = read_all(cluster.address, topic)
    assert sum(each.record_count for each in ranges) == len(seen) == 2000
    for each in seen:
        assert each.partition == partition_for_key(each.key or b"", 3)
        assert each.value == b"v" + (each.key or b"")
        assert each.timestamp == 1_700_000_000_000 + int(each.key or b"")


def test_callbacks_come_in_order_and_before_flush_returns(cluster: Cluster) -> None:
    topic = cluster.topic()
    offsets: list[int] = []

    with Producer(cluster.address, batch_size=300) as producer:
        for _ in range(100):
            producer.send(
                topic, b"v", on_delivery=lambda each: offsets.append(each.result(0).offset)
            )
        producer.flush(PATIENCE)

        assert offsets == list(range(100))


class Marker(ProducerInterceptor):
    """Marks records, and notes what became of them."""

    def __init__(self) -> None:
        self.told: list[tuple[RecordMetadata | None, BaseException | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value, record.key, headers=(("by", b"us"),))

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.told.append((metadata, error))


def test_interceptors_see_records_and_their_outcome(cluster: Cluster) -> None:
    topic = cluster.topic(max_message_bytes="1000")
    marker = Marker()

    with Producer(cluster.address, interceptors=[marker]) as producer:
        place = producer.send(topic, b"v").result(PATIENCE)
        lost = producer.send(topic, b"x" * 2000).exception(PATIENCE)
        producer.flush(PATIENCE)

    # Each handle gives an error of its own, so that a raised one keeps nothing of the others.
    assert [repr(error) for _, error in marker.told] == [repr(None), repr(lost)]
    assert marker.told[0][0] == place
    assert read_all(cluster.address, topic)[0].headers == [("by", b"us")]


def test_serializers_make_the_bytes(cluster: Cluster) -> None:
    topic = cluster.topic()

    with Producer(cluster.address, key_serializer="int64", value_serializer="json") as producer:
        producer.send(topic, {"a": [1]}, key=5)

    (seen,) = read_all(cluster.address, topic)
    assert (seen.key, (seen.value or b"").replace(b" ", b"")) == (b"\0" * 7 + b"\5", b'{"a":[1]}')


def test_closing_sends_what_is_left_and_ends_the_producer(cluster: Cluster) -> None:
    topic = cluster.topic()
    producer = Producer(cluster.address, linger=60)
    sent = [producer.send(topic, b"%d" % number) for number in range(10)]

    producer.close()
    producer.close()

    assert [each.result(0).offset for each in sent] == list(range(10))
    with pytest.raises(ClientClosed):
        producer.send(topic, b"late")


def test_a_topic_that_cannot_be_is_told(cluster: Cluster) -> None:
    topic = cluster.topic()

    with Producer(cluster.address, max_block=3.0) as producer:
        with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
            producer.send(topic, b"v", partition=7)
        with pytest.raises(Exception, match="no/such"):
            producer.send("no/such", b"v")


def test_a_topic_that_is_deleted_is_told(cluster: Cluster) -> None:
    from millstream import Admin

    topic = cluster.topic(name=cluster.new_name("deleted"))
    with Producer(cluster.address, delivery_timeout=3.0, request_timeout=2.0) as producer:
        producer.send(topic, b"v").result(PATIENCE)
        with Admin(cluster.address) as admin:
            admin.delete_topic(topic)
        # The brokers may make it again for whoever asks; either way every handle ends.
        outcome = producer.send(topic, b"v").exception(PATIENCE)

    assert outcome is None or isinstance(outcome, UnknownTopicOrPartition | TimeoutError)


def test_threads_share_a_producer(cluster: Cluster) -> None:
    topic = cluster.topic(2)

    with Producer(cluster.address, batch_size=1000) as producer:

        def send(thread: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d-%04d" % (thread, number), key=b"%d" % thread)

        threads = [threading.Thread(target=send, args=(each,)) for each in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    values = [each.value or b"" for each in read_all(cluster.address, topic)]
    for thread in range(3):
        own = [value for value in values if value.startswith(b"%d-" % thread)]
        assert own == [b"%d-%04d" % (thread, number) for number in range(500)]


def test_the_asyncio_client_sends_waits_and_tells(cluster: Cluster) -> None:
    topic = cluster.topic(2, max_message_bytes="4000")
    table = pa.table({"value": [b"row"] * 100})

    async def main() -> None:
        async with AsyncProducer(cluster.address, compression_type="zstd") as producer:
            deliveries = [
                await producer.send(topic, b"%d" % n, partition=0, headers={"n": b"%d" % n})
                for n in range(100)
            ]
            places = await asyncio.gather(*deliveries)
            assert [each.offset for each in places] == list(range(100))
            lost = await producer.send(topic, os.urandom(5000), partition=1)
            with pytest.raises(MessageTooLarge):
                await lost
            await (await producer.send_batch(topic, table))
            await producer.flush()
        with pytest.raises(ClientClosed):
            await producer.send(topic, b"late")

    asyncio.run(asyncio.wait_for(main(), 60))

    assert len(read_all(cluster.address, topic)) == 200
