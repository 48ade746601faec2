"""confluent-kafka: librdkafka with its administrative side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason="a client used only in tests")
admin_api: Any = pytest.importorskip("confluent_kafka.admin", reason="a client used only in tests")

TopicPartition = confluent_kafka.TopicPartition
KafkaException = confluent_kafka.KafkaException
NewTopic = admin_api.NewTopic
ConfigResource, ResourceType = admin_api.ConfigResource, admin_api.ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

VALUES = [b"value %d" % number for number in range(3000)]


@pytest.fixture
def admin(broker: str) -> Any:
    return admin_api.AdminClient({"bootstrap.servers": broker})


@pytest.fixture
def consumer(broker: str) -> Iterator[Any]:
    settings = {"group.id": "not used", "enable.auto.commit": False}
    made = confluent_kafka.Consumer({"bootstrap.servers": broker, **settings})
    yield made
    made.close()


def produce(broker: str, topic: str, values: list[bytes], **settings: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker, "linger.ms": 5, **settings})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failures == []


def consume(consumer: Any, topic: str, count: int, offset: int = 0) -> list[bytes]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    values: list[bytes] = []
    while len(values) < count:
        for message in consumer.consume(count - len(values), timeout=30):
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_idempotent_producer_with_every_codec(
    broker: str, topic: str, consumer: Any, codec: str
) -> None:
    settings = {"enable.idempotence": True, "compression.type": codec}

    produce(broker, topic, VALUES, **settings)

    assert consume(consumer, topic, len(VALUES)) == VALUES


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(
    broker: str, topic: str, consumer: Any, admin: Any, acks: str
) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)

    produce(broker, topic, VALUES, acks=acks)

    assert consume(consumer, topic, len(VALUES)) == VALUES


def test_large_records(broker: str, topic: str, consumer: Any) -> None:
    values = [bytes([number]) * 900_000 for number in range(5)]

    produce(broker, topic, values)

    assert consume(consumer, topic, 5) == values


def test_topics_are_created_described_grown_and_deleted(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, config={"retention.ms": "5000"})])[topic].result(30)
    with pytest.raises(KafkaException, match="exists"):
        admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    admin.create_partitions([admin_api.NewPartitions(topic, 3)])[topic].result(30)

    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(30)
    assert len(described.partitions) == 3
    assert admin.describe_cluster().result(30).controller.id == 1

    admin.delete_topics([topic])[topic].result(30)
    assert topic not in admin.list_topics(timeout=30).topics


def test_settings_are_described_and_changed(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, config={"retention.ms": "5000"})])[topic].result(30)
    entry = admin_api.ConfigEntry(
        "flush.ms", "77", incremental_operation=admin_api.AlterConfigOpType.SET
    )
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(30)

    asked = ConfigResource(ResourceType.TOPIC, topic)
    settings = admin.describe_configs([asked])[asked].result(30)

    assert settings["retention.ms"].value == "5000"
    assert settings["flush.ms"].value == "77"
    assert settings["segment.bytes"].is_default
    of_broker = ConfigResource(ResourceType.BROKER, "1")
    assert admin.describe_configs([of_broker])[of_broker].result(30)["log.dirs"].value


def test_offsets_and_deletion_of_records(
    broker: str, topic: str, admin: Any, consumer: Any
) -> None:
    produce(broker, topic, VALUES[:10])
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=30) == (0, 10)
    assert consumer.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=30)[0].offset == 0

    asked = {partition: admin_api.OffsetSpec.latest()}
    assert admin.list_offsets(asked)[partition].result(30).offset == 10
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result(30)

    assert consumer.get_watermark_offsets(partition, timeout=30) == (4, 10)
    assert consume(consumer, topic, 6, 4) == VALUES[4:10]
