"""Our producer and Apache Kafka: codecs, tables, transactions, a batch that is too large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import Producer, TopicPartition
from millstream.client.producer.transaction_manager import TransactionManager
from millstream.errors import MessageTooLarge, ProducerFenced
from millstream.records import partition_for_key
from tests.integration.client.producer.reading import confluent_kafka, read_all
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka."""
    scratch = tmp_path_factory.mktemp("kafka")
    jars = require_broker_jars(scratch)
    broker = KafkaBroker(jars, scratch / "data", scratch)
    broker.format()
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


@pytest.fixture
def topic(kafka: str, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions, that takes a thousand bytes at once."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka})
    new = confluent_kafka.admin.NewTopic(name, 3, 1, config={"max.message.bytes": "4000"})
    admin.create_topics([new])[name].result(20)
    return name


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_understood(kafka: str, topic: str, codec: Any) -> None:
    with Producer(kafka, compression_type=codec, batch_size=3000) as producer:
        sent = [producer.send(topic, b"%d" % n * 20, key=b"%d" % (n % 9)) for n in range(500)]
        places = [each.result(20) for each in sent]

    seen = {(each.partition, each.offset): each.value for each in read_all(kafka, topic)}
    assert len(seen) == 500
    for number, place in enumerate(places):
        assert place.partition == partition_for_key(b"%d" % (number % 9), 3)
        assert seen[place.partition, place.offset] == b"%d" % number * 20


def test_too_large_batches_go_in_parts_and_too_large_records_are_told(
    kafka: str, topic: str
) -> None:
    with Producer(kafka, linger=0.05) as producer:
        sent = [producer.send(topic, b"%04d" % n + b"x" * 100, partition=0) for n in range(200)]
        lost = producer.send(topic, b"x" * 5000, partition=0)
        offsets = [each.result(20).offset for each in sent]
        assert isinstance(lost.exception(20), MessageTooLarge)
        assert producer.send(topic, b"after", partition=0).result(20).offset == 200

    assert offsets == list(range(200))


def test_tables(kafka: str, topic: str) -> None:
    table = pa.table({"key": [b"%d" % n for n in range(2000)], "value": [b"v"] * 2000})

    with Producer(kafka, batch_size=3000) as producer:
        producer.send_batch(topic, table).result(20)

    seen = read_all(kafka, topic)
    assert len(seen) == 2000
    assert all(each.partition == partition_for_key(each.key or b"", 3) for each in seen)


@pytest.mark.parametrize("version", [1, 2])
def test_transactions(
    kafka: str, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == 1:
        monkeypatch.setattr(TransactionManager, "_is_implicit_now", lambda self: None)
    name = f"id-{version}"
    old = Producer(kafka, transactional_id=name)
    for number in range(3):
        with old.transaction():
            old.send(topic, b"%d" % number, partition=number)
            old.send_offsets_to_transaction({TopicPartition(topic, 0): number}, name)
    old.begin_transaction()
    old.send(topic, b"dropped").result(20)
    old.abort_transaction()
    old.begin_transaction()
    old.send(topic, b"zombie").result(20)

    with Producer(kafka, transactional_id=name) as new:
        with new.transaction():
            new.send(topic, b"new", partition=0)
        with pytest.raises(ProducerFenced):
            old.commit_transaction()
        old.close()

    seen = [each.value for each in read_all(kafka, topic, committed=True)]
    assert sorted(value or b"" for value in seen) == [b"0", b"1", b"2", b"new"]
