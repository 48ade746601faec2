"""A schema registry in memory, our client of it, and Confluent's serializers as witnesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.serialization.schema_registry import SchemaRegistryClient
from tests.confluent_serdes import confluent_modules, value_of
from tests.schema_registry import Registry, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def confluent() -> Any:
    """Confluent's schema registry modules."""
    return confluent_modules()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient(registry.url)


@pytest.fixture
def value_context() -> Any:
    """Tells Confluent's serializers that it is a value of "orders"."""
    return value_of("orders")
