"""Confluent's own serializers, which tests hold ours against."""

from __future__ import annotations

import warnings
from typing import Any


def confluent_modules() -> Any:
    """Their schema registry modules; one of their dependencies warns when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import confluent_kafka.schema_registry.avro
        import confluent_kafka.schema_registry.json_schema
        import confluent_kafka.schema_registry.protobuf

    return confluent_kafka.schema_registry


def value_of(topic: str) -> Any:
    """Tells their serializers that it is a value of the topic."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE)
