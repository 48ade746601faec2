"""Writes to topics of Apache Kafka and reads them, through librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.log_keeper import Row

if TYPE_CHECKING:
    from tests.interop.kafka_broker import KafkaBroker

SECONDS_MAX = 60.0
SEGMENT_BYTES = 4000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "codecs": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "transactions": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "500",
    },
}


def create_topics(broker: KafkaBroker) -> None:
    """All of them, with small segments."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    sizes = {"internal.segment.bytes": str(SEGMENT_BYTES)}
    wanted = [NewTopic(name, 1, 1, config={**sizes, **config}) for name, config in TOPICS.items()]
    for created in admin.create_topics(wanted).values():
        created.result(SECONDS_MAX)


def produce_everything(broker: KafkaBroker, tag: str) -> None:
    """Some hundred records, in every way there is; all are acknowledged when this returns."""
    for topic in ("plain", "stamped"):
        _produce(broker, topic, tag, {"enable.idempotence": topic == "plain"})
    for codec in CODECS:
        _produce(broker, "codecs", f"{tag}-{codec}", {"compression.type": codec})
    _produce_transactions(broker, tag)
    _produce(broker, "compacted", tag, {"enable.idempotence": True}, key_count=9)


def _produce(
    broker: KafkaBroker, topic: str, tag: str, settings: dict[str, Any], key_count: int = 1000
) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0, **settings})
    for number in range(120):
        is_tombstone = key_count < 1000 and number % 11 == 0
        value = None if is_tombstone else f"{tag} {number} ".encode() * 4
        producer.produce(topic, value, f"k{number % key_count}".encode())
        if number % 6 == 5:
            assert producer.flush(SECONDS_MAX) == 0


def _produce_transactions(broker: KafkaBroker, tag: str) -> None:
    """Commits and aborts of two producers that overlap."""
    common = {"bootstrap.servers": broker.address, "log_level": 0}
    producers = [Producer({**common, "transactional.id": f"{tag}-{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(SECONDS_MAX)
    for number in range(10):
        for producer in producers:
            producer.begin_transaction()
            for topic in ("transactions", "compacted"):
                value = f"{tag} transaction {number} ".encode() * 3
                producer.produce(topic, value, f"t{number % 4}".encode())
            producer.flush(SECONDS_MAX)
        for index, producer in enumerate(producers):
            if (number + index) % 3 == 0:
                producer.abort_transaction(SECONDS_MAX)
            else:
                producer.commit_transaction(SECONDS_MAX)


def consume(broker: KafkaBroker, topic: str) -> list[Row]:
    """Everything a read_committed consumer gets of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "interop",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: list[Row] = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{topic} does not come to its end"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return rows
            offset = message.offset()
            assert offset is not None
            rows.append(Row(offset, _bytes(message.key()), _bytes(message.value())))
    finally:
        consumer.close()


def consume_everything(broker: KafkaBroker) -> dict[str, list[Row]]:
    """What all topics have."""
    return {topic: consume(broker, topic) for topic in TOPICS}


def _bytes(content: str | bytes | None) -> bytes | None:
    assert not isinstance(content, str)
    return content
