"""One broker for the tests of consumers here, and topics on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.consumer.topics import SETTINGS, Topics

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SETTINGS, in_memory=True) as running:
        yield running


@pytest.fixture
def topics(broker: EmbeddedBroker) -> Topics:
    return Topics(broker)
