"""Apache Kafka 2.1, the oldest that our clients work with: a broker and its ZooKeeper.

ZooKeeper is newer than that Kafka's own, whose client cannot resolve names on today's Java.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.interop.java_client import DOWNLOAD_SECONDS_MAX, jar_directory

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "2.1.1"
_JARS = (
    ("org.apache.zookeeper", "zookeeper", "3.5.9"),
    ("org.apache.kafka", "kafka_2.12", VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.25"),
)
_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_ZOOKEEPER = """\
dataDir={data}/zookeeper
clientPort={zookeeper_port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""
_KAFKA = """\
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{zookeeper_port}
zookeeper.connection.timeout.ms=60000
log.dirs={data}/kafka
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


class OldKafka:
    """One broker and one ZooKeeper, in processes of their own."""

    def __init__(self, scratch: Path) -> None:
        self._jars = _require_jars(scratch)
        self._scratch = scratch
        zookeeper_port, self._port = _free_port(), _free_port()
        values = {"data": scratch, "zookeeper_port": zookeeper_port, "port": self._port}
        (scratch / "zookeeper.properties").write_text(_ZOOKEEPER.format(**values))
        (scratch / "kafka.properties").write_text(_KAFKA.format(**values))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        """For clients, which wait until it answers."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Begin to start both; the broker waits for its ZooKeeper."""
        self._run("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper.properties")
        self._run("kafka.Kafka", "kafka.properties")

    def stop(self) -> None:
        """The broker first."""
        for process in reversed(self._processes):
            process.kill()
            process.wait(30)

    def _run(self, program: str, settings: str) -> None:
        self._processes.append(
            subprocess.Popen(
                ["java", *_JVM, "-cp", f"{self._jars}/*", program, str(self._scratch / settings)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )


def _require_jars(scratch: Path) -> Path:
    """The jars; the test is skipped if they cannot be had."""
    jars = jar_directory() / f"kafka-{VERSION}"
    maven = shutil.which("mvn")
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH: Apache Kafka cannot run")
    if (jars / f"kafka_2.12-{VERSION}.jar").exists():
        return jars
    if maven is None:
        pytest.skip(f"no mvn on the PATH, and no Kafka {VERSION} in {jars}")
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in _JARS
    )
    (scratch / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millstream</groupId><artifactId>old</artifactId><version>0</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    copied = subprocess.run(
        [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if copied.returncode:
        pytest.skip(f"Maven cannot fetch Kafka {VERSION}: {copied.stdout[-500:]}")
    return jars


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
