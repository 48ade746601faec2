"""Our consumer and Apache Kafka: codecs, groups, seeks, transactions, Arrow."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream import Consumer, TopicPartition
from millstream.client.consumer.read_topic import read_topic
from millstream.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PATIENCE = 30.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka."""
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
    broker.format()
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


@pytest.fixture
def topic(kafka: str, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    return name


def write(kafka: str, topic: str, count: int, **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, **settings})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=1000 * number + 1)
    assert producer.flush(PATIENCE) == 0


def numbers(consumer: Consumer, count: int) -> list[int]:
    return sorted(int(each.value) for each in islice(consumer, count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(kafka: str, topic: str, codec: str) -> None:
    write(kafka, topic, 1000, **{"compression.type": codec, "linger.ms": 20})

    with Consumer(kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])

        assert numbers(consumer, 1000) == list(range(1000))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_left_off(kafka: str, topic: str, protocol: Any) -> None:
    write(kafka, topic, 100)
    settings: Any = {
        "group_id": f"group-{topic}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }

    with Consumer(kafka, topic, **settings) as consumer:
        first = numbers(consumer, 40)
    with Consumer(kafka, topic, **settings) as consumer:
        second = numbers(consumer, 60)
        consumer.commit()
        committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)])

    assert sorted(first + second) == list(range(100))
    assert {each and each.offset for each in committed.values()} == {50}


def test_seeks_and_lookups(kafka: str, topic: str) -> None:
    write(kafka, topic, 20)
    at = TopicPartition(topic, 0)

    with Consumer(kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([at])
        assert consumer.end_offsets([at]) == {at: 10}
        assert consumer.beginning_offsets([at]) == {at: 0}
        found = consumer.offsets_for_times({at: 9_000})[at]
        assert found is not None
        assert (found.offset, found.timestamp) == (5, 10_001)
        consumer.seek_to_time(9_000)
        assert consumer.poll(PATIENCE)[0].offset == 5
        consumer.seek(at, 8)
        assert [each.offset for each in consumer.poll(PATIENCE)] == [8, 9]
        assert consumer.lag(at) == 0


def test_aborted_transactions_are_left_out(kafka: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(PATIENCE)
        if number % 2:
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)

    committed = read_topic(kafka, topic, isolation_level="read_committed").to_arrow()
    everything = read_topic(kafka, topic).to_arrow()

    assert committed.column("value").to_pylist() == [b"0", b"2", b"4"]
    assert everything.num_rows == 6


def test_a_topic_as_columns(kafka: str, topic: str) -> None:
    write(kafka, topic, 50)

    table = read_topic(kafka, topic, start=5, end=20, columns=["offset", "partition"]).to_arrow()

    assert table.num_rows == 30
    with pytest.raises(OffsetOutOfRange):
        read_topic(kafka, topic, start=26)
    with pytest.raises(UnknownTopicOrPartition):
        read_topic(kafka, "nowhere")
