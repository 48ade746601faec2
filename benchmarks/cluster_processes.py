"""The contenders of `benchmarks.cluster`: three combined nodes of ours or of Apache Kafka.

Each node is a process of its own with the settings that a user gets without asking. Both are
formatted the same way, as a dynamic quorum of three. Nothing here measures.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Protocol

import pytest

from benchmarks.broker_processes import HOST, KAFKA, OURS, STOP_SECONDS_MAX, free_port
from millstream import Admin
from millstream.errors import MillstreamError
from millstream.types import Uuid
from tests.integration.node.harness import Client
from tests.interop.java_client import require_broker_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

PATIENCE_SECONDS = 120
_LOOK_SECONDS = 0.01
_JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Xmx1G", "-Xms256m")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class Software(Protocol):
    """How nodes of a contender are formatted and started."""

    name: str

    def format_command(self, properties: Path, *options: str) -> list[str]:
        """What takes a node's directory."""
        ...

    def start_command(self, properties: Path) -> list[str]:
        """What runs a node."""
        ...


class Millstream:
    """Ours."""

    name = OURS

    def format_command(self, properties: Path, *options: str) -> list[str]:
        """See `Software`."""
        command = [sys.executable, "-m", "millstream", "storage", "format"]
        return [*command, "--config", str(properties), *options]

    def start_command(self, properties: Path) -> list[str]:
        """See `Software`."""
        return [sys.executable, "-m", "millstream", "server", "start", "--config", str(properties)]


class Kafka:
    """Apache Kafka from Maven."""

    name = KAFKA

    def __init__(self, scratch: Path) -> None:
        try:
            self._jars = require_broker_jars(scratch)
        except pytest.skip.Exception as reason:
            sys.exit(f"no Apache Kafka to compare with: {reason}. --without-kafka runs ours alone.")

    def format_command(self, properties: Path, *options: str) -> list[str]:
        """See `Software`."""
        command = ["java", _QUIET, "-cp", f"{self._jars}/*", "kafka.tools.StorageTool", "format"]
        return [*command, "-c", str(properties), *options]

    def start_command(self, properties: Path) -> list[str]:
        """See `Software`."""
        return ["java", *_JVM, _QUIET, "-cp", f"{self._jars}/*", "kafka.Kafka", str(properties)]


@dataclass(slots=True)
class NodeProcess:
    """One node, running or not."""

    id: int
    port: int
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For clients."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process whose CPU time counts."""
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass(slots=True)
class ClusterProcesses:
    """Three nodes of one contender. A context manager: they always end."""

    software: Software
    directory: Path
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    _cluster_id: str = ""
    _controllers: dict[int, int] = field(default_factory=dict)

    def __enter__(self) -> Self:
        random = Random()
        self._cluster_id = str(Uuid.random(random))
        self._controllers = {each: free_port() for each in (1, 2, 3)}
        voters = ",".join(
            f"{each}@{HOST}:{port}:{Uuid.random(random)}"
            for each, port in self._controllers.items()
        )
        for node_id in self._controllers:
            self._add(node_id, "broker,controller", "--initial-controllers", voters)
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.send(signal.SIGCONT)
            node.send(signal.SIGKILL)
        for node in self.nodes.values():
            if node.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    node.process.wait(STOP_SECONDS_MAX)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _add(self, node_id: int, roles: str, *format_options: str) -> NodeProcess:
        node = NodeProcess(node_id, free_port(), self.directory / str(node_id))
        node.directory.mkdir(parents=True)
        listeners = [f"PLAINTEXT://{node.address}"]
        if node_id in self._controllers:
            listeners.append(f"CONTROLLER://{HOST}:{self._controllers[node_id]}")
        settings = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{port}" for port in self._controllers.values()
            ),
            "log.dirs": str(node.directory / "data"),
        }
        properties = node.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = self.software.format_command(
            properties, "--cluster-id", self._cluster_id, *format_options
        )
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        self.nodes[node_id] = node
        return node

    def add_broker(self) -> NodeProcess:
        """A fourth node, formatted and not started: a broker alone."""
        return self._add(4, "broker")

    def launch(self, *nodes: NodeProcess) -> None:
        """Start nodes; returns at once."""
        for node in nodes or self.nodes.values():
            with (node.directory / "log").open("ab") as log:
                command = self.software.start_command(node.directory / "server.properties")
                node.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)

    def admin(self, *excluded: NodeProcess) -> Admin:
        """An admin that asks the nodes that are left."""
        chosen = [each.address for each in self.nodes.values() if each not in excluded]
        return Admin(",".join(chosen), request_timeout=5.0, default_api_timeout=20.0)

    def leader(self) -> NodeProcess:
        """The node that is the active controller."""
        with self.admin() as admin:
            return self.nodes[admin.describe_quorum().leader_id]

    def until_whole(self) -> None:
        """Wait until all nodes are members and the quorum has caught up.

        A node that was killed stays a member until its session ends: it has to listen again.
        """
        for address in (*self.controllers(), *(each.address for each in self.nodes.values())):
            self.until(partial(_listens, address))
        with self.admin() as admin:
            count = len(self.nodes)
            self.until(lambda: len(admin.describe_cluster().brokers) == count)
            self.until(lambda: _is_caught_up(admin))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something; what is not answered meanwhile does not count."""
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while True:
            with suppress(MillstreamError, OSError):
                if holds():
                    return
            if time.perf_counter() > deadline:
                sys.exit(f"{self.software.name}: it did not come to that; see {self._last_words()}")
            time.sleep(_LOOK_SECONDS)

    def controllers(self, *excluded: NodeProcess) -> list[str]:
        """Where the quorum listens, without some of its nodes."""
        left = self._controllers.keys() - {each.id for each in excluded}
        return [f"{HOST}:{self._controllers[each]}" for each in sorted(left)]

    def client(self, node: NodeProcess) -> Client:
        """A connection, as soon as a node accepts one."""
        found: list[Client] = []

        def connect() -> bool:
            found.append(Client(node.address))
            return True

        self.until(connect)
        return found[0]

    def _last_words(self) -> str:
        return "\n".join(
            (each.directory / "log").read_text()[-800:] for each in self.nodes.values()
        )


def _listens(address: str) -> bool:
    with Client(address):
        return True


def _is_caught_up(admin: Admin) -> bool:
    quorum = admin.describe_quorum()
    ends = {each.node_id: each.log_end_offset for each in quorum.voters}
    return all(ends[quorum.leader_id] - each < 10 for each in ends.values())
