"""Apache Kafka's tools, many commands in one JVM, and the Java client driven by `ClientPeer`."""

from __future__ import annotations

import base64
import select
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS_MAX = 90
COMPILE_SECONDS_MAX = 120
# A short life: what the JVM's second compiler would gain is never earned back.
_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SOURCES = [
    Path(__file__).with_name(name)
    for name in ("ToolHost.java", "ClientPeer.java", "SharePeer.java")
]
_TOOLS = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "client": "ClientPeer",
    "share": "SharePeer",
}


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def compile_programs(jars: Path, scratch: Path) -> Path:
    """The directory with the classes of our own programs."""
    classes = scratch / "classes"
    subprocess.run(
        ["javac", "-cp", f"{jars}/*", "-d", str(classes), *map(str, _SOURCES)],
        timeout=COMPILE_SECONDS_MAX,
        check=True,
    )
    return classes


class JavaTools:
    """A JVM that runs one command after the other. It ends with `close`."""

    def __init__(self, jars: Path, classes: Path) -> None:
        self._process = subprocess.Popen(
            [
                "java",
                *_JVM,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{classes}:{jars}/*",
                "ToolHost",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def attempt(self, tool: str, *arguments: object, given: str = "") -> Ran:
        """Run a command to its end, whatever that is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        fields = [_TOOLS[tool], given, *map(str, arguments)]
        line = b"\t".join(base64.b64encode(field.encode()) for field in fields)
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS_MAX)
        if not ready:
            self._process.kill()
            raise AssertionError(f"{tool} {arguments} does not come to an end")
        code, out, err = self._process.stdout.readline().rstrip(b"\n").split(b"\t")
        return Ran(int(code), _text(out), _text(err))

    def run(self, tool: str, *arguments: object, given: str = "") -> str:
        """What a command prints; it must succeed and have no warning to give."""
        ran = self.attempt(tool, *arguments, given=given)
        assert ran.code == 0, f"{tool} {arguments}: {ran.out[-2000:]}{ran.err[-4000:]}"
        assert ran.err == "", f"{tool} {arguments}: {ran.err[-4000:]}"
        return ran.out

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Cluster:
    """A broker, and the tools that are told where it is."""

    def __init__(self, java: JavaTools, address: str, log_dirs: Sequence[Path] = ()) -> None:
        self.java = java
        self.address = address
        self.log_dirs = log_dirs

    def run(self, tool: str, *arguments: object, given: str = "") -> str:
        """What a command prints; it must succeed and have no warning to give."""
        return self.java.run(tool, *self._placed(tool, arguments), given=given)

    def refusal(self, tool: str, *arguments: object) -> str:
        """What a command says that must fail."""
        ran = self.java.attempt(tool, *self._placed(tool, arguments))
        assert ran.code != 0, f"{tool} {arguments}: {ran.out}"
        return ran.out + ran.err

    def client(self, command: str, *arguments: object) -> list[str]:
        """The lines of `ClientPeer`."""
        return self.java.run("client", command, self.address, *arguments).splitlines()

    def share(self, command: str, group: str, topic: str, *arguments: object) -> list[str]:
        """The lines of `SharePeer`."""
        return self.java.run("share", command, self.address, group, topic, *arguments).splitlines()

    def _placed(self, tool: str, arguments: tuple[object, ...]) -> tuple[object, ...]:
        option = ("--bootstrap-server", self.address)
        return (*arguments, *option) if tool == "kafka-cluster" else (*option, *arguments)


def _text(field: bytes) -> str:
    return base64.b64decode(field).decode()
