"""One broker process for all tests of a module, whose groups do not wait for latecomers."""

from __future__ import annotations

import signal
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.integration.node.harness import Client, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = (
    "--set",
    "group.initial.rebalance.delay.ms=0",
    "--set",
    "group.consumer.min.heartbeat.interval.ms=100",
    "--set",
    "group.consumer.heartbeat.interval.ms=500",
    "--set",
    "group.consumer.min.session.timeout.ms=6000",
    "--set",
    "group.consumer.session.timeout.ms=6000",
    "--set",
    "offsets.topic.num.partitions=4",
    "--set",
    "transaction.state.log.num.partitions=4",
)
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens. It must stop in order, and have nothing to complain about."""
    with running(tmp_path_factory.mktemp("broker"), *SETTINGS) as node:
        yield node.until_ready()
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names that no other test has."""
    return lambda kind: f"{kind}-{next(_numbers)}"


@pytest.fixture
def topic(broker: str, new_name: Callable[[str], str]) -> str:
    """A topic of four partitions."""
    name = new_name("topic")
    with Client(broker) as client:
        assert client.create_topic(name, 4) == 0
    return name
