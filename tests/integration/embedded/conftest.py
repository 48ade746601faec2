"""A broker for the tests of a module, and the clients."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from millstream.testing import EmbeddedBroker
from tests.integration.embedded.clients import Aiokafka, Client, Confluent, KafkaPython

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.reset()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"topic-{uuid.uuid4()}"
    broker.create_topic(name)
    return name


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka])
def client(request: pytest.FixtureRequest) -> Client:
    made: Client = request.param()
    return made
