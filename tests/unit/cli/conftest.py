"""Groups on a cluster in memory, for the tests of `millstream groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli import groups as module
from millstream.cli.app import run
from tests.unit.cli.fake_groups import FakeGroup, FakeGroups, assignment, modern_member
from tests.unit.cli.memory_selector import PLACES, MemorySelector

if TYPE_CHECKING:
    from tests.unit.cli.running import Run


@pytest.fixture(autouse=True)
def memory_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients connect to clusters in memory."""
    for client in ("io_thread", "consumer.session", "producer.core"):
        monkeypatch.setattr(f"millstream.client.{client}.open_client_selector", MemorySelector)
    PLACES.clear()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    """Three partitions: two with ten records, and an empty one."""
    cluster = FakeGroups(partitions=3)
    for partition in (0, 1):
        cluster.append(partition, *[b"x"] * 5, timestamp=1000)
        cluster.append(partition, *[b"y"] * 5, timestamp=5000)
    monkeypatch.setattr(module, "open_session", lambda *_: cluster.session())
    return cluster


@pytest.fixture
def groups(cluster: FakeGroups, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of the family; its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["groups", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def readers(cluster: FakeGroups) -> FakeGroup:
    """A classic group without members that has read some of the topic."""
    cluster.groups["readers"] = FakeGroup(offsets={0: 4, 1: 10})
    return cluster.groups["readers"]


@pytest.fixture
def busy(cluster: FakeGroups) -> FakeGroup:
    """A group of the consumer protocol in the middle of a change."""
    first = modern_member("m1", assignment(0, 1), assignment(0))
    second = modern_member("m2", assignment(), assignment(1, 2))
    cluster.groups["busy"] = FakeGroup(
        "consumer", "Reconciling", {0: 4}, modern=[first, second], is_reading=True
    )
    return cluster.groups["busy"]
