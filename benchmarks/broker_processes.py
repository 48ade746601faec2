"""The contenders of `benchmarks.broker`: our broker and Apache Kafka, each a process of its own.

Both run with the settings a user gets without asking, but for three delays: deleted topics leave
the disk at once, so that many rounds fit on it, and a broker may stand still for minutes, which it
does while the other one is measured. Nothing here measures.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from millstream.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListOffsetsRequest,
    create_topics,
    delete_topics,
    list_offsets,
)
from tests.integration.node.harness import Client
from tests.interop.java_client import require_broker_jars

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

OURS, BEFORE, KAFKA = "millstream", "before", "kafka"
HOST = "127.0.0.1"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
TOPIC_SECONDS_MAX = 30
_CONNECT_PAUSE_SECONDS = 0.002
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

SETTINGS = {
    "log.segment.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "broker.session.timeout.ms": "600000",
}
"""What differs from the defaults, for both, unless a launcher is given something else."""

# What kafka-server-start.sh gives the JVM.
_HEAP = ("-Xmx1G", "-Xms1G")
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# What the server.properties that comes with Apache Kafka sets.
_KAFKA = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class Launcher(Protocol):
    """How a contender is started."""

    name: str

    def prepare(self, directory: Path, port: int) -> None:
        """What a user does once before the first start."""
        ...

    def command(self, directory: Path, port: int) -> list[str]:
        """What starts it."""
        ...


class MillstreamLauncher:
    """`millstream server start`; a new directory needs no preparation."""

    def __init__(
        self, settings: Mapping[str, str] = SETTINGS, checkout: Path | None = None
    ) -> None:
        self.name = OURS if checkout is None else BEFORE
        self._settings = settings
        self._python = sys.executable if checkout is None else str(python_of(checkout))

    def prepare(self, directory: Path, port: int) -> None:
        """Nothing."""

    def command(self, directory: Path, port: int) -> list[str]:
        """As the installed script would."""
        command = [self._python, "-m", "millstream", "server", "start"]
        command += ["--data", str(directory / "data"), "--listen", f"{HOST}:{port}"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        return command


class KafkaLauncher:
    """Apache Kafka from Maven, combined mode."""

    name = KAFKA

    def __init__(self, scratch: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self._settings = settings
        try:
            self._jars = require_broker_jars(scratch)
        except pytest.skip.Exception as reason:
            sys.exit(f"no Apache Kafka to compare with: {reason}. --without-kafka runs ours alone.")

    def prepare(self, directory: Path, port: int) -> None:
        """Write its settings and format its directory, which Apache Kafka asks of its users."""
        directory.mkdir(parents=True, exist_ok=True)
        controller = f"{HOST}:{free_port()}"
        settings = {
            **_KAFKA,
            **self._settings,
            "controller.quorum.bootstrap.servers": controller,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
            "log.dirs": str(directory / "data"),
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["java", "-cp", f"{self._jars}/*", "kafka.tools.StorageTool", "format"]
        command += ["--standalone", "-t", _CLUSTER_ID, "-c", str(properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS_MAX)

    def command(self, directory: Path, port: int) -> list[str]:
        """As kafka-server-start.sh would."""
        log = f"-Xlog:gc*:file={directory}/gc.log:time,tags:filecount=10,filesize=100M"
        command = ["java", *_HEAP, *_JVM, log, "-cp", f"{self._jars}/*"]
        return [*command, "kafka.Kafka", str(directory / "server.properties")]


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Who stands beside ours: Apache Kafka, another revision of ours, nobody."""
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--without-kafka", action="store_true", help="ours alone")
    peer.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help="beside another revision of ours instead, a checkout with its own environment",
    )


def contenders(
    options: argparse.Namespace, scratch: Path, settings: Mapping[str, str] = SETTINGS
) -> list[Launcher]:
    """Ours, and whom the command line wants beside it."""
    launchers: list[Launcher] = [MillstreamLauncher(settings)]
    if options.before:
        launchers.append(MillstreamLauncher(settings, options.before))
    elif not options.without_kafka:
        launchers.append(KafkaLauncher(scratch, settings))
    return launchers


class BrokerProcess:
    """A running contender, and what a benchmark asks of it. A context manager: it always ends."""

    def __init__(self, launcher: Launcher, directory: Path) -> None:
        self.name = launcher.name
        self.port = free_port()
        self._directory = directory
        launcher.prepare(directory, self.port)
        directory.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with (directory / "broker.log").open("wb") as log:
            self.started = time.perf_counter()
            self._process = subprocess.Popen(
                launcher.command(directory, self.port), stdout=log, stderr=log, env=environment
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """It uses no processor meanwhile: an idle Apache Kafka takes a tenth of one."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Of the process whose CPU time and memory count."""
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """What it holds in memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def client(self) -> Client:
        """A connection, as soon as the broker accepts one."""
        deadline = time.perf_counter() + START_SECONDS_MAX
        while time.perf_counter() < deadline:
            if self._process.poll() is not None:
                break
            try:
                return Client(f"{HOST}:{self.port}")
            except OSError:
                time.sleep(_CONNECT_PAUSE_SECONDS)
        sys.exit(f"{self.name} does not start: {self.log()[-2000:]}")

    def log(self) -> str:
        """What it has said."""
        return (self._directory / "broker.log").read_text()

    def create_topic(self, topic: str, partitions: int) -> bytes:
        """Its id, once every partition answers as leader."""
        wanted = create_topics.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TOPIC_SECONDS_MAX * 1000)
        with self.client() as client:
            (made,) = client.ask(request, 7, create_topics.CreateTopicsResponse).topics
            if made.error_code:
                sys.exit(f"{self.name} does not create a topic: {made.error_message}")
        deadline = time.perf_counter() + TOPIC_SECONDS_MAX
        while self.end_offsets(topic, partitions) is None:
            if time.perf_counter() > deadline:
                sys.exit(f"{self.name}: no leaders for {topic}")
            time.sleep(_CONNECT_PAUSE_SECONDS)
        return bytes(made.topic_id)

    def delete_topic(self, topic: str) -> None:
        """Its files are gone when this returns."""
        state = delete_topics.DeleteTopicState(name=topic)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TOPIC_SECONDS_MAX * 1000)
        with self.client() as client:
            (gone,) = client.ask(request, 6, delete_topics.DeleteTopicsResponse).responses
            if gone.error_code:
                sys.exit(f"{self.name} does not delete a topic: {gone.error_message}")
        deadline = time.perf_counter() + TOPIC_SECONDS_MAX
        while any((self._directory / "data").glob(f"{topic}*")):
            if time.perf_counter() > deadline:
                sys.exit(f"{self.name}: the files of {topic} do not go")
            time.sleep(_CONNECT_PAUSE_SECONDS)

    def end_offsets(self, topic: str, partitions: int) -> int | None:
        """The sum over all partitions: how many records there are. None: not all have a leader."""
        asked = [
            list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
            for index in range(partitions)
        ]
        wanted = list_offsets.ListOffsetsTopic(name=topic, partitions=asked)
        with self.client() as client:
            answer = client.ask(
                ListOffsetsRequest(topics=[wanted]), 7, list_offsets.ListOffsetsResponse
            )
        found = answer.topics[0].partitions
        if any(each.error_code for each in found):
            return None
        return sum(each.offset for each in found)


def python_of(checkout: Path) -> Path:
    """The interpreter of another revision's own environment."""
    found = checkout.resolve() / ".venv" / "bin" / "python"
    if not found.exists():
        sys.exit(f"{found} does not exist; run `make setup` in {checkout}")
    return found


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
