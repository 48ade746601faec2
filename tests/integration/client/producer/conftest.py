"""One broker for all tests here; each test has topics of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[EmbeddedBroker]:
    """A broker, in memory."""
    with EmbeddedBroker(in_memory=True) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """The broker, without faults afterwards."""
    yield shared_broker
    shared_broker.faults.clear()


@pytest.fixture
def make_topic(broker: EmbeddedBroker) -> Callable[..., str]:
    """Creates a topic with a new name: `make_topic(partitions=3)`."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        broker.create_topic(name, partitions=partitions, config=settings)
        return name

    return make
