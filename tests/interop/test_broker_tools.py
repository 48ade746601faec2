"""Apache Kafka's command line tools against a broker of ours: topics, records, the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.tools import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def write_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


class TestTopics:
    """kafka-topics."""

    def test_a_topic_lives_from_creation_to_deletion(self, cluster: Cluster, topic: str) -> None:
        asked = ("--topic", topic)
        created = cluster.run(
            "kafka-topics", "--create", *asked, "--partitions", 3, "--config", "retention.ms=9000"
        )
        assert f"Created topic {topic}." in created
        assert topic in cluster.run("kafka-topics", "--list").splitlines()

        described = cluster.run("kafka-topics", "--describe", *asked)
        assert "PartitionCount: 3\tReplicationFactor: 1" in described
        assert "retention.ms=9000" in described
        assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3

        cluster.run("kafka-topics", "--alter", *asked, "--partitions", 5)
        assert "PartitionCount: 5" in cluster.run("kafka-topics", "--describe", *asked)
        cluster.run("kafka-topics", "--delete", *asked)
        assert topic not in cluster.run("kafka-topics", "--list").splitlines()

    def test_what_cannot_be_is_refused_with_a_reason(self, cluster: Cluster, topic: str) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic, "--partitions", 2)
        refused = {
            ("--create", "--topic", topic): "TopicExistsException",
            ("--create", "--topic", "a+b"): "InvalidTopicException",
            ("--create", "--topic", "x", "--replication-factor", 3): "InvalidReplicationFactor",
            ("--alter", "--topic", topic, "--partitions", 1): "InvalidPartitionsException",
            ("--delete", "--topic", "nowhere"): "does not exist",
        }

        for arguments, reason in refused.items():
            assert reason in cluster.refusal("kafka-topics", *arguments)
        cluster.run("kafka-topics", "--create", "--topic", topic, "--if-not-exists")

    def test_replicas_can_be_assigned_by_hand(self, cluster: Cluster, topic: str) -> None:
        create = ("--create", "--topic", topic, "--replica-assignment")

        assert "InvalidReplicaAssignment" in cluster.refusal("kafka-topics", *create, "7,7")
        cluster.run("kafka-topics", *create, "1,1")

        described = cluster.run("kafka-topics", "--describe", "--topic", topic)
        assert "PartitionCount: 2" in described

    def test_nothing_is_in_need_of_help(self, cluster: Cluster, topic: str) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)

        for need in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
            listed = cluster.run("kafka-topics", "--describe", f"--{need}-partitions")
            assert (topic in listed) == (need == "at-min-isr")


class TestRecords:
    """kafka-console-producer, kafka-console-consumer and those that count and delete."""

    def consume(self, cluster: Cluster, topic: str, offset: object, count: int) -> list[str]:
        shown = ("timestamp", "offset", "partition", "key", "headers")
        properties = [
            part for name in shown for part in ("--formatter-property", f"print.{name}=true")
        ]
        where = ("--topic", topic, "--partition", 0, "--offset", offset)
        ran = cluster.java.attempt(
            "kafka-console-consumer",
            *("--bootstrap-server", cluster.address, *where),
            *("--max-messages", count, "--timeout-ms", 30_000, *properties),
        )
        # It counts the records on standard error.
        assert ran.err.strip() == f"Processed a total of {count} messages"
        return ran.out.splitlines()

    @pytest.mark.parametrize("codec", CODECS)
    def test_keys_and_headers_with_every_codec(
        self, cluster: Cluster, topic: str, codec: str
    ) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)
        rows = [f"h:{number},i:x\tkey{number}\tvalue {number}" for number in range(50)]
        parsing = [f"--reader-property=parse.{what}=true" for what in ("key", "headers")]

        cluster.run(
            "kafka-console-producer",
            *("--topic", topic, "--compression-codec", codec, *parsing),
            given="\n".join(rows),
        )

        lines = [line.split("\t") for line in self.consume(cluster, topic, "earliest", 50)]
        assert [line[1] for line in lines] == ["Partition:0"] * 50
        assert [line[2] for line in lines] == [f"Offset:{number}" for number in range(50)]
        assert ["\t".join(line[3:]) for line in lines] == rows
        assert self.consume(cluster, topic, 49, 1)[0].endswith("value 49")

    def test_offsets_are_found_and_records_deleted(
        self, cluster: Cluster, topic: str, tmp_path: Path
    ) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)
        lines = "\n".join(map(str, range(10)))
        cluster.run("kafka-console-producer", "--topic", topic, given=lines)

        def offset(time: object) -> str:
            asked = ("--topic", topic, "--time", time)
            return cluster.run("kafka-get-offsets", *asked).strip()

        assert offset("latest") == offset(-1) == f"{topic}:0:10"
        assert offset("earliest") == offset("earliest-local") == offset(1) == f"{topic}:0:0"
        assert offset("max-timestamp").startswith(f"{topic}:0:")
        wanted = {"topic": topic, "partition": 0, "offset": 4}
        file = write_json(tmp_path / "offsets.json", {"version": 1, "partitions": [wanted]})
        deleted = cluster.run("kafka-delete-records", "--offset-json-file", file)

        assert f"partition: {topic}-0\tlow_watermark: 4" in deleted
        assert offset("earliest") == f"{topic}:0:4"
        assert len(self.consume(cluster, topic, "earliest", 6)) == 6

    def test_a_topic_comes_into_being_when_it_is_used(self, cluster: Cluster, topic: str) -> None:
        where = ("--bootstrap-server", cluster.address, "--topic", topic)

        ran = cluster.java.attempt("kafka-console-producer", *where, given="x\n")

        assert ran.code == 0
        # The first answer is that there is none yet; the client asks again.
        assert f"{{{topic}=UNKNOWN_TOPIC_OR_PARTITION}}" in ran.err
        assert self.consume(cluster, topic, "earliest", 1)[0].endswith("x")

    def test_the_performance_test(self, cluster: Cluster, topic: str) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)
        load = ("--topic", topic, "--num-records", 5000, "--record-size", 200, "--throughput", -1)

        said = cluster.run("kafka-producer-perf-test", *load)

        assert "5000 records sent" in said
        assert cluster.run("kafka-get-offsets", "--topic", topic).strip() == f"{topic}:0:5000"


class TestCluster:
    """What the tools say about the broker, its controller and its disks."""

    def test_the_quorum(self, cluster: Cluster) -> None:
        status = cluster.run("kafka-metadata-quorum", "describe", "--status")
        fields = dict(line.split(":", 1) for line in status.splitlines() if line)
        replication = cluster.run("kafka-metadata-quorum", "describe", "--replication")

        assert fields["LeaderId"].strip() == "1"
        assert fields["MaxFollowerLag"].strip() == "0"
        (voter,) = json.loads(fields["CurrentVoters"])
        assert voter["id"] == 1
        assert voter["endpoints"][0].startswith("CONTROLLER://")
        assert replication.splitlines()[1].split()[0] == "1"
        assert replication.splitlines()[1].split()[-1] == "Leader"

    def test_features(self, cluster: Cluster) -> None:
        def level(name: str) -> str:
            lines = cluster.run("kafka-features", "describe").splitlines()
            (line,) = [line for line in lines if line.startswith(f"Feature: {name} ")]
            return line.split("FinalizedVersionLevel: ")[1].split()[0]

        assert level("metadata.version") == "4.3-IV0"
        assert level("kraft.version") == "1"
        said = cluster.run("kafka-features", "downgrade", "--feature", "share.version=0")
        assert "share.version was downgraded to 0." in said
        assert level("share.version") == "0"
        cluster.run("kafka-features", "upgrade", "--release-version", "4.3")
        assert level("share.version") == "1"
        refused = cluster.refusal("kafka-features", "upgrade", "--feature", "share.version=9")
        assert "Could not upgrade share.version to 9" in refused

    def test_the_cluster_and_its_members(self, cluster: Cluster) -> None:
        assert "Cluster ID: " in cluster.run("kafka-cluster", "cluster-id")
        listed = cluster.run("kafka-cluster", "list-endpoints").splitlines()
        assert listed[1].split()[:3] == ["1", *cluster.address.split(":")]
        refused = cluster.refusal("kafka-cluster", "unregister", "--id", 55)
        assert "BrokerIdNotRegistered" in refused

    def test_the_apis_are_offered_in_the_newest_versions(self, cluster: Cluster) -> None:
        """Telemetry only with a receiver."""
        listed = cluster.run("kafka-broker-api-versions")
        offers = dict(line.strip().split(": ", 1) for line in listed.splitlines() if "\t" in line)

        assert offers["Produce(0)"].rstrip(",") == "0 to 13 [usable: 13]"
        assert offers["Fetch(1)"].rstrip(",") == "4 to 18 [usable: 18]"
        assert offers["PushTelemetry(72)"].rstrip(",") == "UNSUPPORTED"

    def test_the_log_directories(self, cluster: Cluster, topic: str) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)
        cluster.run("kafka-console-producer", "--topic", topic, given="x\n")

        said = cluster.run("kafka-log-dirs", "--describe", "--topic-list", topic)

        (broker,) = json.loads(said.splitlines()[-1])["brokers"]
        assert {each["logDir"] for each in broker["logDirs"]} == set(map(str, cluster.log_dirs))
        (found,) = [each for directory in broker["logDirs"] for each in directory["partitions"]]
        assert found["partition"] == f"{topic}-0"
        assert found["size"] > 60

    def test_elections(self, cluster: Cluster, topic: str) -> None:
        cluster.run("kafka-topics", "--create", "--topic", topic)

        for kind in ("preferred", "unclean"):
            asked = ("--election-type", kind, "--topic", topic, "--partition", 0)
            assert "already elected" in cluster.run("kafka-leader-election", *asked)
        asked = ("--election-type", "preferred", "--topic", "nowhere", "--partition", 0)
        assert "UnknownTopicOrPartition" in cluster.refusal("kafka-leader-election", *asked)
