"""Millstream: event streaming for Python teams, on the Kafka protocol.

Importing this package costs next to nothing: the public names below are imported when they are
first used, each from the module that has it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.consumer.async_consumer import AsyncConsumer
    from millstream.client.consumer.consumer import Consumer
    from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
    from millstream.client.producer.async_producer import AsyncProducer
    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.producer import Producer
    from millstream.client.producer.record import RecordMetadata
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "Delivery",
    "OffsetAndMetadata",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_MODULE_OF = {
    "AsyncConsumer": "millstream.client.consumer.async_consumer",
    "AsyncProducer": "millstream.client.producer.async_producer",
    "Consumer": "millstream.client.consumer.consumer",
    "ConsumerGroupMetadata": "millstream.client.groups",
    "ConsumerRecord": "millstream.records.kernel",
    "Delivery": "millstream.client.producer.delivery",
    "OffsetAndMetadata": "millstream.client.groups",
    "Producer": "millstream.client.producer.producer",
    "RecordMetadata": "millstream.client.producer.record",
    "TopicPartition": "millstream.types",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    found = getattr(import_module(module), name)
    globals()[name] = found  # The next use does not come here.
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
