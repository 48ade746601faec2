"""Apache Kafka itself: a broker in a process of its own, and its tool that reads log files."""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NODE_ID = 1
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60
DUMP_SECONDS_MAX = 60
# A short life: what the JVM's second compiler would gain is never earned back.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_SETTINGS = """\
process.roles=broker,controller
node.id={node_id}
{quorum}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=100
log.segment.delete.delay.ms=100
"""


def dump_segments(jars: Path, files: Iterable[Path], *options: str) -> str:
    """What `kafka-dump-log` says about some files."""
    ran = subprocess.run(
        [
            "java",
            "-Xmx512m",
            *_JVM,
            "-cp",
            f"{jars}/*",
            "org.apache.kafka.tools.DumpLogSegments",
            *options,
            "--files",
            ",".join(map(str, files)),
        ],
        capture_output=True,
        text=True,
        timeout=DUMP_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout + ran.stderr


class KafkaProcess:
    """A node of Apache Kafka: its settings, its process and what it logs."""

    def __init__(self, jars: Path, scratch: Path, heap: str = "512m") -> None:
        self._jars = jars
        self._jvm = (f"-Xmx{heap}", *_JVM)
        self._log_path = scratch / "kafka.log"
        self.settings_path = scratch / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Its warnings and errors of all its lives."""
        return self._log_path.read_text() if self._log_path.exists() else ""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def format(self, *options: str) -> None:
        """Make the directory this node's."""
        arguments = ("format", "-t", CLUSTER_ID, "--config", str(self.settings_path), *options)
        ran = subprocess.run(
            [*self._storage_tool(), *arguments],
            capture_output=True,
            text=True,
            timeout=DUMP_SECONDS_MAX,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]

    def launch(self) -> None:
        """Begin to start."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._server(), stdout=log, stderr=log)

    def _storage_tool(self) -> list[str]:
        """The command that formats directories."""
        return ["java", *self._jvm, "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]

    def _server(self) -> list[str]:
        """The command that runs the node."""
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        settings = str(self.settings_path)
        return ["java", *self._jvm, level, "-cp", f"{self._jars}/*", "kafka.Kafka", settings]

    def stop(self) -> None:
        """Stop in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it hang: its connections stand, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
            if process.poll() is None:
                process.kill()
                process.wait()
                raise AssertionError(f"Apache Kafka does not stop: {self.log[-2000:]}")


class KafkaBroker(KafkaProcess):
    """One node of Apache Kafka, broker and controller, on a directory."""

    def __init__(self, jars: Path, data: Path, scratch: Path, *, is_dynamic: bool = False) -> None:
        """A dynamic quorum has its voters in the metadata, a static one in the settings."""
        super().__init__(jars, scratch)
        self.data = data
        self._port, controller_port = free_ports(2)
        controller = f"localhost:{controller_port}"
        quorum = (
            f"bootstrap.servers={controller}" if is_dynamic else f"voters={NODE_ID}@{controller}"
        )
        self.settings_path.write_text(
            _SETTINGS.format(
                node_id=NODE_ID,
                port=self._port,
                controller_port=controller_port,
                quorum=f"controller.quorum.{quorum}",
                data=data,
            )
        )

    @property
    def address(self) -> str:
        """For clients."""
        return f"localhost:{self._port}"

    def start(self) -> None:
        """Return when it answers clients."""
        self.launch()
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        admin.list_topics(timeout=START_SECONDS_MAX)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
