"""`millstream cluster` as a person runs it: processes that are started, killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin
from millstream.cli.cluster_plan import require_plan
from millstream.cli.cluster_state import NodeStatus, cluster_status
from millstream.cli.supervisor import NodeState
from tests.integration.cli.commands import command_line, run_command
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class Supervised:
    """A cluster under its supervisor."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.log = directory.with_suffix(".err")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command_line("cluster", "start", "--data", str(directory), "--json", *options),
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        found: dict[str, Any] = json.loads(line)
        return found

    def status(self) -> dict[str, Any]:
        """What the command shows."""
        shown = run_command("cluster", "status", "--data", str(self.directory), "--json")
        found: dict[str, Any] = json.loads(shown.out)
        return found | {"code": shown.code}

    def nodes(self) -> list[NodeStatus]:
        """How the nodes are, without a process to ask."""
        directory = str(self.directory)
        return list(cluster_status(directory, require_plan(directory)).nodes)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        if any(each.pid is not None for each in self.nodes()):
            directory = str(self.directory)
            run_command("cluster", "stop", "--data", directory, "--force", "--timeout", "5")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def started(directory: Path) -> Iterator[list[Supervised]]:
    made: list[Supervised] = []
    yield made
    for each in made:
        each.close()


def test_a_cluster_lives_until_it_is_told_to_stop(
    directory: Path, started: list[Supervised]
) -> None:
    cluster = Supervised(directory, "--nodes", "3", "--listen", "127.0.0.1:0")
    started.append(cluster)
    ready = cluster.ready()

    pids = [each["pid"] for each in ready["nodes"]]
    with Admin(ready["bootstrap_servers"]) as admin:
        assert len(admin.describe_cluster().brokers) == 3
    assert cluster.status()["code"] == 0

    os.kill(pids[0], signal.SIGKILL)
    until(lambda: cluster.nodes()[0].restarts == 1)
    until(lambda: cluster.nodes()[0].state is NodeState.RUNNING)
    other = run_command("cluster", "start", "--data", str(directory))
    assert (other.code, "runs on" in other.err) == (1, True)

    stopped = run_command("cluster", "stop", "--data", str(directory))
    assert stopped.code == 0, stopped
    assert cluster.process.wait() == 0
    assert {each.state for each in cluster.nodes()} == {NodeState.STOPPED}
    assert "node 1 was ended by SIGKILL; it is started again in 0.5 s" in cluster.log.read_text()
    assert "node 1 | " in cluster.log.read_text()


def test_nodes_outlive_a_supervisor_that_is_killed(
    directory: Path, started: list[Supervised]
) -> None:
    options = ("--nodes", "1", "--controllers", "1", "--listen", "127.0.0.1:0")
    cluster = Supervised(directory, *options)
    started.append(cluster)
    before = cluster.ready()

    cluster.process.kill()
    cluster.process.wait()
    found = cluster.status()
    assert (found["code"], found["supervisor_pid"]) == (0, None)
    assert [each["pid"] for each in found["nodes"]] == [each["pid"] for each in before["nodes"]]
    assert [each["roles"] for each in found["nodes"]] == [["broker"], ["controller"]]
    again = run_command("cluster", "start", "--data", str(directory))
    assert (again.code, "node 1, 2 still runs, without a supervisor" in again.err) == (1, True)

    assert run_command("cluster", "stop", "--data", str(directory)).code == 0
    assert {each.state for each in cluster.nodes()} == {NodeState.STOPPED}
    # The same cluster comes back, and Ctrl-C ends it.
    cluster = Supervised(directory)
    started.append(cluster)
    after = cluster.ready()
    assert after["bootstrap_servers"] == before["bootstrap_servers"]
    assert after["cluster_id"] == before["cluster_id"]
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait() == 0
