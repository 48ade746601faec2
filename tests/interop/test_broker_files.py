"""What our broker leaves on disk: Apache Kafka's tools read it, and Apache Kafka goes on with it.

The cluster changes hands: ours, Apache Kafka's, ours, and Apache Kafka's again, all with one
`server.properties` and one directory. The journey is made once, the tests look at its stations.
"""

from __future__ import annotations

import re
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.integration.node.harness import running
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.tools import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.tools import JavaTools

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

METADATA = "__cluster_metadata-0"
LOG_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")
# Kafka says the first of every partition that it creates while it runs, and the second of a
# partition that never had a record: we make an index when there is something to be found.
HARMLESS = re.compile(
    "to exist, but it was missing"
    "|Could not find offset index file corresponding to log file [^ ]*/grown-"
)


class View(NamedTuple):
    """What a client sees of the cluster."""

    topics: list[str]
    records: list[str]
    settings: list[str]
    cluster: list[str]


class Journey(NamedTuple):
    """What each owner found, and what our broker left first."""

    by_kafka: View
    by_us: View
    by_kafka_again: View
    first_files: Path
    our_logs: str
    kafka_log: str


def look(cluster: Cluster) -> View:
    settings = cluster.client("settings", "TOPIC", "letters")
    return View(
        cluster.client("topics", "letters", "grown"),
        [line.split(" ")[5] for line in cluster.client("consume", "letters", 0)],
        [line for line in settings if "DYNAMIC_TOPIC_CONFIG" in line],
        [line for line in cluster.client("cluster") if not line.startswith("listed")],
    )


def change(cluster: Cluster, name: str, partitions: int) -> None:
    """Add to everything; each owner leaves a mark."""
    cluster.client("produce", "letters", 10, name, 5, "compression.type=zstd")
    cluster.client("alter", "TOPIC", "letters", f"SET flush.ms {partitions}")
    cluster.client("grow", "grown", partitions)


def create(cluster: Cluster) -> None:
    cluster.client("create", "letters", 1, "retention.ms=-1")
    cluster.client("create", "grown", 1)
    cluster.client("create", "gone", 1)
    cluster.client("delete", "gone")
    cluster.client("alter", "GROUP", "crew", "SET consumer.session.timeout.ms 50000")
    cluster.client("alter", "BROKER", "", "SET log.retention.ms 8000000")


@pytest.fixture(scope="module")
def journey(java: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    scratch, data = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("data")
    kafka = KafkaBroker(require_broker_jars(scratch), data, scratch, is_dynamic=True)
    cluster = Cluster(java, kafka.address)
    logs: list[str] = []
    views: list[View] = []
    first_files = scratch / "first"

    with our_broker(kafka, logs):
        create(cluster)
        change(cluster, "a", 2)
    shutil.copytree(data, first_files)
    for number, owner in enumerate((kafka, None, kafka)):
        with kafka_broker(kafka) if owner else our_broker(kafka, logs):
            views.append(look(cluster))
            change(cluster, "bcd"[number], 3 + number)
    return Journey(views[0], views[1], views[2], first_files, "".join(logs), kafka.log)


@contextmanager
def our_broker(kafka: KafkaBroker, logs: list[str]) -> Iterator[None]:
    """Ours, with the settings of the other; its log is added to `logs`."""
    with running(kafka.data, "--config", str(kafka.settings_path)) as node:
        assert node.until_ready() == kafka.address
        yield
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    logs.append(log)


@contextmanager
def kafka_broker(kafka: KafkaBroker) -> Iterator[None]:
    """Apache Kafka's."""
    kafka.start()
    try:
        yield
    finally:
        kafka.stop()


def letters(names: str) -> list[str]:
    return [f"{name}{number}" for name in names for number in range(10)]


def test_kafka_takes_over_what_we_wrote(journey: Journey) -> None:
    view = journey.by_kafka

    assert view.records == letters("a")
    assert view.settings == [
        "flush.ms=2 DYNAMIC_TOPIC_CONFIG false",
        "retention.ms=-1 DYNAMIC_TOPIC_CONFIG false",
    ]
    assert {"resource GROUP crew", "controller 1", "feature kraft.version 1"} <= set(view.cluster)
    assert "resource TOPIC gone" not in view.cluster


def test_we_take_over_what_kafka_wrote(journey: Journey) -> None:
    view = journey.by_us

    assert view.records == letters("ab")
    assert view.settings[0] == "flush.ms=3 DYNAMIC_TOPIC_CONFIG false"
    assert view.topics[0] == journey.by_kafka.topics[0], "the id of a topic stays"
    assert len(view.topics) == len(journey.by_kafka.topics) + 1
    assert view.cluster == journey.by_kafka.cluster


def test_kafka_takes_over_once_more(journey: Journey) -> None:
    view = journey.by_kafka_again

    assert view.records == letters("abc")
    assert view.settings[0] == "flush.ms=4 DYNAMIC_TOPIC_CONFIG false"
    assert view.cluster == journey.by_kafka.cluster


def test_nobody_complains(journey: Journey) -> None:
    assert "left unclean" not in journey.our_logs.split("stopped", 1)[1]
    for word in ("ERROR", "Traceback"):
        assert word not in journey.our_logs
    assert "corrupt" not in journey.kafka_log.lower()
    errors = [line for line in journey.kafka_log.splitlines() if " ERROR " in line]
    assert [line for line in errors if not HARMLESS.search(line)] == []


def test_the_dump_tool_reads_our_metadata(journey: Journey, java: JavaTools) -> None:
    directory = journey.first_files / METADATA
    files = [*sorted(directory.glob("*.log")), *sorted(directory.glob("*.checkpoint"))]
    files.append(journey.first_files / "bootstrap.checkpoint")

    said = java.run(
        "kafka-dump-log", "--cluster-metadata-decoder", "--files", ",".join(map(str, files))
    )

    assert 'LeaderChange: {"version":0,"leaderId":1' in said
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in said
    kinds = set(re.findall(r'"type":"(\w+)"', said))
    assert kinds >= {"TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "REMOVE_TOPIC_RECORD"}
    assert kinds >= {"FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "PRODUCER_IDS_RECORD"}
    assert "isvalid: false" not in said
    assert "Could not" not in said


def test_the_dump_tool_reads_our_logs(journey: Journey, java: JavaTools) -> None:
    directory = journey.first_files / "letters-0"
    files = [each for each in directory.iterdir() if each.suffix in LOG_SUFFIXES]

    said = java.run(
        "kafka-dump-log", "--deep-iteration", "--print-data-log",
        "--files", ",".join(map(str, sorted(files))),
    )  # fmt: skip

    assert {each.suffix for each in files} >= {".log", ".index", ".timeindex", ".snapshot"}
    assert re.findall(r"payload: (\w+)", said) == letters("a")
    assert "compresscodec: zstd" in said
    assert "isvalid: false" not in said
    assert "mismatch" not in said.lower()


def test_the_metadata_shell_reads_our_log(journey: Journey, java: JavaTools) -> None:
    (log,) = (journey.first_files / METADATA).glob("*.log")

    def shell(*command: str) -> str:
        ran = java.attempt("kafka-metadata-shell", "--snapshot", log, *command)
        # What it says of every quorum whose voters are in the log.
        unexpected = [
            line for line in ran.err.splitlines() if "Ignoring control record" not in line
        ]
        assert unexpected == []
        return ran.out

    # It answers as soon as it has read something; each command reads from the beginning.
    until(lambda: shell("ls", "/image/topics/byName").split() == ["grown", "letters"])
    until(lambda: shell("cat", "/image/configs/TOPIC:letters/retention.ms").strip() == "-1")
    # Nobody leads it while its only broker is down, and that one may when it comes back.
    until(lambda: "elr=[1]" in shell("cat", "/image/topics/byName/grown/1"))
