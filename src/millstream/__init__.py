"""Millstream: event streaming for Python teams, on the Kafka protocol.

Importing this package costs next to nothing; the parts are imported where they are used. What type
checkers see of it is in `__init__.pyi`.
"""

from __future__ import annotations

__version__ = "0.1.0"

_MODULES = {
    "AcknowledgeType": "millstream.client.share_consumer.acknowledgements",
    "Admin": "millstream.client.admin.admin",
    "AsyncAdmin": "millstream.client.admin.async_admin",
    "AsyncConsumer": "millstream.client.consumer.async_consumer",
    "AsyncProducer": "millstream.client.producer.async_producer",
    "AsyncRetryingConsumer": "millstream.client.retrying.async_consumer",
    "AsyncShareConsumer": "millstream.client.share_consumer.async_share_consumer",
    "Attempt": "millstream.client.retrying.attempt",
    "AsyncTopicReader": "millstream.client.consumer.read_topic",
    "ClientMetrics": "millstream.client.metrics",
    "Consumer": "millstream.client.consumer.consumer",
    "ConsumerGroupMetadata": "millstream.client.groups",
    "ConsumerInterceptor": "millstream.client.consumer.interceptors",
    "ConsumerMetrics": "millstream.client.metrics",
    "ConsumerRecord": "millstream.records.kernel",
    "Delivery": "millstream.client.producer.kernel",
    "EmbeddedBroker": "millstream.testing.embedded",
    "EmbeddedCluster": "millstream.testing.cluster",
    "NewTopic": "millstream.client.admin.topics",
    "OffsetAndMetadata": "millstream.client.groups",
    "Producer": "millstream.client.producer.producer",
    "ProducerInterceptor": "millstream.client.producer.interceptors",
    "ProducerMetrics": "millstream.client.metrics",
    "ProducerRecord": "millstream.client.producer.record",
    "RebalanceListener": "millstream.client.consumer.listeners",
    "RecordMetadata": "millstream.client.producer.record",
    "RetryingConsumer": "millstream.client.retrying.consumer",
    "ShareConsumer": "millstream.client.share_consumer.share_consumer",
    "ShareConsumerMetrics": "millstream.client.metrics",
    "ShareRecord": "millstream.client.share_consumer.share_record",
    "TopicPartition": "millstream.types",
    "TopicReader": "millstream.client.consumer.read_topic",
    "async_read_topic": "millstream.client.consumer.read_topic",
    "read_topic": "millstream.client.consumer.read_topic",
}
"""Where each public name lives, but exceptions; it is imported when it is first asked for."""

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> object:
    # What Python itself asks a module for is never an exception.
    if name not in _MODULES and (name.startswith("_") or name not in _errors()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_MODULES.get(name, "millstream.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_errors()})


def _errors() -> list[str]:
    """The exceptions: all that `millstream.errors` has."""
    from importlib import import_module

    names: list[str] = import_module("millstream.errors").__all__
    return names
