"""kafka-python and aiokafka: two clients whose protocol code is their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

kafka = pytest.importorskip("kafka", reason="a client used only in tests")
aiokafka = pytest.importorskip("aiokafka", reason="a client used only in tests")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # What these libraries leave open or deprecate is not ours to fix.
    pytest.mark.filterwarnings("ignore"),
]

VALUES = [b"value %d" % number for number in range(500)]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


class TestKafkaPython:
    """kafka-python."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_records_go_in_and_come_out(self, broker: str, topic: str, codec: str | None) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=broker, compression_type=codec)
        sent = [producer.send(topic, value, partition=0) for value in VALUES]
        producer.flush(60)
        producer.close()

        assert [each.get(30).offset for each in sent] == list(range(len(VALUES)))
        assert self.consume(broker, topic) == VALUES

    def consume(self, broker: str, topic: str) -> list[bytes]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker, consumer_timeout_ms=30_000)
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values: list[bytes] = []
        for record in consumer:
            values.append(record.value)
            if len(values) == len(VALUES):
                break
        consumer.close()
        return values

    def test_offsets_by_time(self, broker: str, topic: str) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=broker)
        for stamp in (1000, 2000, 3000):
            producer.send(topic, b"x", partition=0, timestamp_ms=stamp).get(30)
        producer.close()
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker)
        partition = kafka.TopicPartition(topic, 0)

        found = consumer.offsets_for_times({partition: 1500})[partition]
        ends = consumer.end_offsets([partition])
        consumer.close()

        assert (found.offset, found.timestamp) == (1, 2000)
        assert ends == {partition: 3}


class TestAiokafka:
    """aiokafka."""

    async def _round_trip(self, broker: str, topic: str, codec: str | None) -> list[Any]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        try:
            for value in VALUES:
                await producer.send(topic, value, partition=0)
            await producer.flush()
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in VALUES]
        finally:
            await consumer.stop()

    @pytest.mark.parametrize("codec", CODECS)
    def test_an_idempotent_producer(self, broker: str, topic: str, codec: str | None) -> None:
        assert asyncio.run(self._round_trip(broker, topic, codec)) == VALUES
