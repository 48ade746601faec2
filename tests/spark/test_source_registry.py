"""Values of a schema registry, through Spark, as Confluent's serializers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from millstream.spark.worker_clients import close_all
from tests.confluent_serdes import confluent_modules, value_of
from tests.schema_registry import running_registry
from tests.spark.source_world import SourceWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


def message_classes() -> tuple[Any, Any]:
    """`shop.Order`, with a time and an amount of another file, and `shop.Refund`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    one: dict[str, Any] = {"label": kinds.LABEL_OPTIONAL}
    cents = money.message_type.add(name="Money").field
    cents.add(name="cents", number=1, type=kinds.TYPE_INT64, **one)
    file = descriptor_pb2.FileDescriptorProto(
        name="orders.proto",
        package="shop",
        syntax="proto3",
        dependency=["money.proto", "google/protobuf/timestamp.proto"],
    )
    order = file.message_type.add(name="Order").field
    order.add(name="id", number=1, type=kinds.TYPE_INT64, **one)
    message: dict[str, Any] = {"type": kinds.TYPE_MESSAGE, **one}
    order.add(name="price", number=2, type_name=".shop.Money", **message)
    order.add(name="at", number=3, type_name=".google.protobuf.Timestamp", **message)
    refund = file.message_type.add(name="Refund").field
    refund.add(name="order", number=1, type=kinds.TYPE_INT64, **one)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(money)
    pool.Add(file)
    found = [pool.FindMessageTypeByName(name) for name in ("shop.Order", "shop.Refund")]
    return message_factory.GetMessageClass(found[0]), message_factory.GetMessageClass(found[1])


def test_protobuf_of_a_registry_becomes_columns_and_other_messages_are_buried(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory
) -> None:
    topic, graves = millstream_topic("orders"), millstream_topic("graves")
    order, refund = message_classes()
    confluent = confluent_modules()
    with running_registry() as registry:
        peer = confluent.SchemaRegistryClient({"url": registry.url})
        values = []
        for message in (order(id=1, price={"cents": 5}, at={"seconds": 60}), refund(order=1)):
            options = {"use.deprecated.format": False}
            write = confluent.protobuf.ProtobufSerializer(type(message), peer, options)
            values.append(write(message, value_of(topic)))
        world.produce(topic, *values)

        read = spark.read.format("millstream").options(
            **world.options(
                subscribe=topic,
                valueFormat="protobuf",
                schemaRegistryUrl=registry.url,
                valueSubject=f"{topic}-value",
                onDecodeError="deadLetter",
                deadLetterTopic=graves,
            )
        )
        columns = ("value.id", "value.price.cents", "string(value.at)")
        rows = read.load().selectExpr(*columns).collect()

    assert [tuple(row) for row in rows] == [(1, 5, "1970-01-01 00:01:00")]
    assert world.values(subscribe=graves) == [values[1]]
