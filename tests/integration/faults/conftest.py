"""One broker process for all tests of a module; at its end it must have nothing to blame itself."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults.harness import Broker, broker_on, require_calm

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that outlives every fault of the module."""
    with broker_on(tmp_path_factory.mktemp("broker")) as made:
        yield made
        require_calm(made.stop())


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic of one partition."""
    name = f"topic-{next(_numbers)}"
    with broker.client() as client:
        assert client.create_topic(name) == 0
    return name
