"""Reads topics with a foreign client, so that what was written is what others see."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

confluent_kafka: Any = pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka reads what our producer wrote"
)


class Seen(NamedTuple):
    """A record as the foreign client has it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def read_all(bootstrap: str, topic: str, *, committed: bool = False) -> list[Seen]:
    """Every record of a topic, by partition and offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
        open_ones, seen = set(partitions), []
        while open_ones:
            message = consumer.poll(10)
            assert message is not None, "the broker went silent"
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                open_ones.discard(message.partition())
                continue
            seen.append(
                Seen(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers() or [],
                    message.timestamp()[1],
                )
            )
    finally:
        consumer.close()
    return sorted(seen)
