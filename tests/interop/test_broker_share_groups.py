"""The Java share consumer and Kafka's tool for share groups against a broker of ours."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.waiting import until

if TYPE_CHECKING:
    from tests.interop.tools import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def group(cluster: Cluster, topic: str) -> str:
    """A share group that reads from the beginning, and whose locks end soon."""
    name = f"{topic}-sharers"
    cluster.run(
        "kafka-configs",
        "--alter",
        "--entity-type",
        "groups",
        "--entity-name",
        name,
        "--add-config",
        "share.auto.offset.reset=earliest",
    )
    return name


def values(lines: list[str]) -> list[str]:
    return [line.split(" ")[-1] for line in lines]


def shown(cluster: Cluster, group: str, *what: str) -> str:
    """What the tool says about a group; that it has no members it says as an error."""
    arguments = ("--bootstrap-server", cluster.address, "--describe", "--group", group, *what)
    ran = cluster.java.attempt("kafka-share-groups", *arguments)
    assert ran.code == 0, ran
    return ran.out + ran.err


def test_a_share_consumer_gets_every_record_once(cluster: Cluster, topic: str, group: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 2000, "v", 10)

    lines = cluster.share("consume", group, topic, 2000)

    assert lines == [f"0 {number} 1 v{number}" for number in range(2000)]
    assert cluster.share("idle", group, topic, 1500) == []


def test_released_records_come_again_and_others_do_not(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 9, "v", 1)

    lines = cluster.share("explicit", group, topic, 12, "alraaaaaaaaa")

    deliveries = Counter(values(lines))
    assert deliveries["v1"] == 2
    assert {each for each, count in deliveries.items() if count == 1} == {
        f"v{number}" for number in range(9) if number != 1
    }
    assert "0 1 2 v1" in lines


def test_locks_can_be_renewed(cluster: Cluster, topic: str, group: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 4, "v", 1)

    lines = cluster.share("explicit", group, topic, 4, "n")

    assert values(lines) == ["v0", "v1", "v2", "v3"]
    assert cluster.share("idle", group, topic, 1500) == []


def test_a_strict_limit_of_records_is_kept(cluster: Cluster, topic: str, group: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 100, "v", 1)

    lines = cluster.share(
        "consume", group, topic, 100, "max.poll.records=7", "share.acquire.mode=record_limit"
    )

    assert values(lines) == [f"v{number}" for number in range(100)]


def test_members_share_the_records_of_a_partition(cluster: Cluster, topic: str, group: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 3000, "v", 1, "batch.size=1000")

    lines = cluster.share("together", group, topic, 3, 3000, "max.poll.records=50")

    assert Counter(values(lines)) == Counter(f"v{number}" for number in range(3000))


def test_a_member_that_is_gone_leaves_its_records_to_others(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 10, "v", 1)
    # Closing without a word about the records: they are given back.
    first = cluster.share("explicit", group, topic, 10, "l")
    assert set(values(first)) == {f"v{number}" for number in range(10)}

    again = cluster.share("consume", group, topic, 10)

    assert {line.split(" ")[-1]: line.split(" ")[2] for line in again} == {
        f"v{number}": "2" for number in range(10)
    }


def test_the_tool_shows_sets_and_deletes_offsets(cluster: Cluster, topic: str, group: str) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 10, "v", 1)
    cluster.share("consume", group, topic, 10)
    tool = "kafka-share-groups"

    assert group in cluster.run(tool, "--list")
    until(lambda: "has no active members" in shown(cluster, group, "--state"))
    assert "Empty" in shown(cluster, group, "--state")
    table = shown(cluster, group, "--offsets").splitlines()
    assert [group, topic, "0", "10"] in [line.split()[:4] for line in table], table

    cluster.run(
        tool, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert len(cluster.share("consume", group, topic, 10)) == 10

    until(lambda: "has no active members" in shown(cluster, group, "--state"))
    cluster.run(tool, "--delete-offsets", "--group", group, "--topic", topic)
    cluster.run(tool, "--delete", "--group", group)
    assert group not in cluster.run(tool, "--list")


def test_apache_kafka_reads_what_is_kept_of_share_groups(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.client("create", topic, 1)
    cluster.client("produce", topic, 10, "v", 1)
    cluster.share("explicit", group, topic, 11, "alaaaaaaaaa")

    states = dumped(cluster, "__share_group_state", "--share-group-state-decoder")
    groups = dumped(cluster, "__consumer_offsets", "--offsets-decoder")

    mine = [line for line in states if group in line]
    assert any('"type":"0"' in line and '"snapshotEpoch"' in line for line in mine), mine
    assert any('"type":"1"' in line and '"stateBatches"' in line for line in mine), mine
    kinds = {kind for kind in range(10, 16) if any(f'"type":"{kind}"' in line for line in groups)}
    assert kinds == set(range(10, 16)), groups[-20:]


def dumped(cluster: Cluster, topic: str, decoder: str) -> list[str]:
    """The records of an internal topic, as Kafka's tool reads them."""
    files = [
        path
        for directory in cluster.log_dirs
        for path in directory.glob(f"{topic}-*/*.log")
        if path.stat().st_size
    ]
    assert files
    names = ",".join(map(str, files))
    return cluster.java.run("kafka-dump-log", decoder, "--files", names).splitlines()
