"""Reading with a consumer until enough has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import Consumer, TopicPartition

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord
    from tests.integration.client.consumer.topics import Topics


PATIENCE = 20.0


def values(records: list[ConsumerRecord[Any, Any]]) -> list[Any]:
    return [each.value for each in records]


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


def assigned(topics: Topics, topic: str, *partitions: int, **settings: Any) -> Consumer[Any, Any]:
    consumer = Consumer(topics.bootstrap, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign([TopicPartition(topic, each) for each in partitions or (0,)])
    return consumer
