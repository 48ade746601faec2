"""Millstream: event streaming for Python teams, on the Kafka protocol.

Importing this package costs next to nothing; the parts are imported where they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.client.producer.async_producer import AsyncProducer
    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.interceptors import ProducerInterceptor
    from millstream.client.producer.producer import Producer
    from millstream.client.producer.record import ProducerRecord, RecordMetadata
    from millstream.types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "AsyncProducer",
    "Delivery",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_MODULES = {
    "AsyncProducer": "millstream.client.producer.async_producer",
    "Delivery": "millstream.client.producer.kernel",
    "Producer": "millstream.client.producer.producer",
    "ProducerInterceptor": "millstream.client.producer.interceptors",
    "ProducerRecord": "millstream.client.producer.record",
    "RecordMetadata": "millstream.client.producer.record",
    "TopicPartition": "millstream.types",
}
"""Where each public name lives; it is imported when it is first asked for."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
