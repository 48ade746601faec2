"""Fixtures for tests that talk to Kafka: pytest finds them by itself once Millstream is installed.

`millstream_broker` is one broker for all tests of a process; `millstream_topic` makes topics with
names of their own; `millstream_reset` leaves the broker empty. `millstream_cluster` is a cluster of
three nodes for one test, which may kill, pause and cut them. Loading this module costs next to
nothing: brokers are imported when a test first asks for one.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.testing.cluster import EmbeddedCluster
    from millstream.testing.embedded import EmbeddedBroker

_numbers = itertools.count(1)


class TopicFactory(Protocol):
    """Makes a topic for one test."""

    def __call__(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic whose name begins with `name` and that nobody else has; its full name."""
        ...


class ClusterFactory(Protocol):
    """Starts a cluster for one test."""

    def __call__(
        self,
        nodes: int = 3,
        *,
        controllers: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> EmbeddedCluster:
        """A running cluster, which ends with the test."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Settings of the broker from the command line."""
    parser.getgroup("millstream").addoption(
        "--millstream-settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the embedded brokers by Kafka's key; may be given several times",
    )


@pytest.fixture(scope="session")
def millstream_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A running broker. Each worker of pytest-xdist has its own."""
    from millstream.testing.embedded import EmbeddedBroker

    assignments: list[str] = request.config.getoption("--millstream-settings")
    with EmbeddedBroker(_settings(assignments)) as broker:
        yield broker


@pytest.fixture
def millstream_topic(millstream_broker: EmbeddedBroker) -> Iterator[TopicFactory]:
    """Creates topics with names that no other test has; they are deleted after the test."""
    created: list[str] = []

    def create(
        name: str = "topic",
        *,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        unique = f"{name}-{next(_numbers)}"
        millstream_broker.create_topic(unique, partitions, config)
        created.append(unique)
        return unique

    yield create
    if millstream_broker.is_running:
        millstream_broker.delete_topics(*created)


@pytest.fixture
def millstream_reset(millstream_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """The broker without topics or faults, started if a test has stopped it; emptied afterwards."""
    _reset(millstream_broker)
    yield millstream_broker
    _reset(millstream_broker)


@pytest.fixture
def millstream_clusters(request: pytest.FixtureRequest) -> Iterator[ClusterFactory]:
    """Starts clusters for one test, with as many nodes and such settings as it asks for."""
    from millstream.testing.cluster import EmbeddedCluster

    assignments: list[str] = request.config.getoption("--millstream-settings")
    with ExitStack() as started:

        def start(
            nodes: int = 3, *, controllers: int = 0, settings: Mapping[str, object] | None = None
        ) -> EmbeddedCluster:
            merged = {**_settings(assignments), **(settings or {})}
            cluster = EmbeddedCluster(nodes, controllers=controllers, settings=merged)
            return started.enter_context(cluster)

        yield start


@pytest.fixture
def millstream_cluster(millstream_clusters: ClusterFactory) -> EmbeddedCluster:
    """Three running nodes of one cluster, each a broker and a controller; new for each test."""
    return millstream_clusters()


def _reset(broker: EmbeddedBroker) -> None:
    if not broker.is_running:
        broker.stop()
        broker.start()
    broker.reset()


def _settings(assignments: list[str]) -> dict[str, str]:
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"--millstream-settings {assignment!r}: it must be KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings
