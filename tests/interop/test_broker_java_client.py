"""The Java client against a broker of ours: records, offsets and administration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.clock import SystemClock
from tests.waiting import until

if TYPE_CHECKING:
    from tests.interop.tools import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def values(cluster: Cluster, topic: str, offset: int = 0) -> list[str]:
    return [line.split(" ")[5] for line in cluster.client("consume", topic, offset)]


def offsets(cluster: Cluster, topic: str, timestamp: int = 0) -> dict[str, str]:
    lines = cluster.client("offsets", topic, timestamp)
    return {" ".join(line.split(" ")[:2]): line.split(" ", 2)[2] for line in lines}


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_with_every_codec(cluster: Cluster, topic: str, codec: str) -> None:
    cluster.client("create", topic, 1)

    sent = cluster.client("produce", topic, 500, "v", 50, f"compression.type={codec}")

    assert sent == [str(number) for number in range(500)]
    assert cluster.client("consume", topic, 0) == [
        f"{n} {1000 * (n + 1)} CreateTime 0 k{n % 50} v{n} number={n}" for n in range(500)
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(cluster: Cluster, topic: str, acks: str) -> None:
    cluster.client("create", topic, 1)
    settings = [f"acks={acks}", "enable.idempotence=false", "batch.size=1"]

    cluster.client("produce", topic, 100, "v", 1, *settings)

    until(lambda: len(values(cluster, topic)) == 100)
    assert values(cluster, topic) == [f"v{number}" for number in range(100)]


def test_large_fetches_and_small_ones_read_the_same(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 3000, "x" * 500, 3000, "batch.size=200000", "linger.ms=20")

    small = ["fetch.max.bytes=20000", "max.partition.fetch.bytes=10000", "fetch.max.wait.ms=10"]
    everything = cluster.client("consume", topic, 0)
    assert len(everything) == 3000
    assert cluster.client("consume", topic, 0, *small) == everything
    assert cluster.client("consume", topic, 1234) == everything[1234:]
    assert cluster.client("consume", topic, 0, "isolation.level=read_committed") == everything


def test_a_record_that_is_too_large_is_refused(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1, "max.message.bytes=1000")
    arguments = (cluster.address, topic, 1, "x" * 2000, 1)

    ran = cluster.java.attempt("client", "produce", *arguments)

    assert "RecordTooLargeException" in ran.err
    assert offsets(cluster, topic)["admin latest"].startswith("0 ")


def test_offsets_by_time_and_by_name(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 10, "v", 1)

    found = offsets(cluster, topic, 4500)
    assert found == {
        "consumer begin": "0",
        "consumer end": "10",
        "consumer time": "4 5000",
        "admin earliest": "0 -1",
        "admin latest": "10 -1",
        "admin max-timestamp": "9 10000",
        "admin earliest-local": "0 -1",
        "admin latest-tiered": "-1 -1",
        "admin earliest-pending-upload": "-1 -1",
        "admin time": "4 5000",
    }
    assert offsets(cluster, topic, 99_000)["consumer time"] == "null"
    assert cluster.client("trim", topic, 6) == ["6"]
    assert offsets(cluster, topic, 4500)["consumer time"] == "6 7000"
    assert offsets(cluster, topic)["admin earliest"] == "6 -1"


def test_the_brokers_clock_stamps_the_records(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1, "message.timestamp.type=LogAppendTime")
    clock = SystemClock()
    before_ms = clock.wall_ms()

    cluster.client("produce", topic, 5, "v", 1)

    for line in cluster.client("consume", topic, 0):
        _, stamp, kind, *_ = line.split(" ")
        assert kind == "LogAppendTime"
        assert before_ms <= int(stamp) <= clock.wall_ms()


def test_the_producers_of_a_partition(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 7, "v", 1)
    cluster.client("produce", topic, 3, "v", 1)

    lines = [line.split(" ") for line in cluster.client("producers", topic)]

    assert sorted((line[0], line[1], line[3]) for line in lines) == [
        ("0", "2", "false"),
        ("0", "6", "false"),
    ]


def test_a_compacted_topic_keeps_the_last_of_each_key(cluster: Cluster, topic: str) -> None:
    cluster.client(
        "create", topic, 1, "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01",
        "segment.ms=100",
    )  # fmt: skip
    for round_number in range(3):
        cluster.client("produce", topic, 20, f"r{round_number}-", 5, "stamp=now")

    def is_compacted() -> bool:
        # Only a segment that is no longer written to is cleaned: a record ends it.
        cluster.client("produce", topic, 1, "last-", 1, "stamp=now")
        kept = [line for line in values(cluster, topic) if not line.startswith("last")]
        return len(kept) <= 5

    until(is_compacted)
    kept = [line for line in values(cluster, topic) if not line.startswith("last")]
    assert set(kept) <= {f"r2-{number}" for number in range(15, 20)}
    assert set(kept) >= {f"r2-{number}" for number in range(16, 20)}


def test_retention_deletes_old_records(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 10, "old", 1)
    cluster.client("alter", "TOPIC", topic, "SET retention.ms 3600000")

    until(lambda: offsets(cluster, topic)["admin earliest"] == "10 -1")
    cluster.client("produce", topic, 2, "new", 1, "stamp=now")

    assert values(cluster, topic, 10) == ["new0", "new1"]
    ran = cluster.java.attempt(
        "client", "consume", cluster.address, topic, 3, "auto.offset.reset=none"
    )
    assert "OffsetOutOfRangeException" in ran.err


def test_topics_by_name_and_by_id(cluster: Cluster, topic: str) -> None:
    created = cluster.client("create", topic, 2, "retention.ms=9000")
    topic_id = created[0].removeprefix("id ")
    assert created[1:3] == ["partitions 2", "replication 1"]
    assert "retention.ms=9000 DYNAMIC_TOPIC_CONFIG false" in created

    cluster.client("grow", topic, 3)
    partitions = [f"{number} leader 1 replicas 1 isr 1 elr 0" for number in range(3)]
    assert cluster.client("topics", topic) == [f"{topic} {topic_id} false", *partitions]
    cluster.client("delete-id", topic_id)

    again = cluster.java.attempt("client", "delete", cluster.address, topic)
    assert "UnknownTopicOrPartitionException" in again.err
    again = cluster.java.attempt("client", "delete-id", cluster.address, topic_id)
    assert "UnknownTopicIdException" in again.err


def test_a_topic_that_is_made_anew_is_another_topic(cluster: Cluster, topic: str) -> None:
    first = cluster.client("create", topic, 1)[0]
    cluster.client("produce", topic, 5, "old", 1)
    cluster.client("delete", topic)

    assert cluster.client("create", topic, 1)[0] != first
    cluster.client("produce", topic, 2, "new", 1)

    assert values(cluster, topic) == ["new0", "new1"]


def test_settings_are_set_appended_subtracted_and_deleted(cluster: Cluster, topic: str) -> None:
    def settings() -> dict[str, str]:
        lines = cluster.client("settings", "TOPIC", topic)
        return {line.split("=")[0]: line.split("=", 1)[1] for line in lines}

    cluster.client("create", topic, 1)
    changes = ["SET flush.ms 7", "APPEND cleanup.policy compact"]
    cluster.client("alter", "TOPIC", topic, *changes)
    assert settings()["flush.ms"] == "7 DYNAMIC_TOPIC_CONFIG false"
    assert settings()["cleanup.policy"] == "delete,compact DYNAMIC_TOPIC_CONFIG false"

    changes = ["DELETE flush.ms", "SUBTRACT cleanup.policy delete"]
    cluster.client("alter", "TOPIC", topic, *changes)
    assert settings()["flush.ms"].endswith("DEFAULT_CONFIG false")
    assert settings()["cleanup.policy"] == "compact DYNAMIC_TOPIC_CONFIG false"


def test_the_cluster(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)

    described = cluster.client("cluster")

    assert {"controller 1", "nodes 1", "quorum leader 1 voters 1"} <= set(described)
    assert "feature metadata.version 30" in described
    assert f"resource TOPIC {topic}" in described
    assert topic in described[-1].removeprefix("listed ").split(",")


def test_a_replica_moves_to_another_directory(cluster: Cluster, topic: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 200, "v", 1)

    def directory() -> list[tuple[str, str]]:
        lines = [line.split(" ") for line in cluster.client("directories")]
        return [(line[0], line[3]) for line in lines if line[1] == f"{topic}-0"]

    ((before, _),) = directory()
    (target,) = {str(path) for path in cluster.log_dirs} - {before}
    cluster.client("move", topic, target)
    cluster.client("produce", topic, 200, "w", 1)

    until(lambda: directory() == [(target, "false")])
    expected = [f"v{number}" for number in range(200)] + [f"w{number}" for number in range(200)]
    assert values(cluster, topic) == expected
