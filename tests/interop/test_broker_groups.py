"""Consumer groups and transactions through Apache Kafka's tools, against a broker of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.tools import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

VALUES = [str(number) for number in range(20)]


def consume(cluster: Cluster, topic: str, *arguments: object) -> list[str]:
    """What the console consumer reads until it has them all."""
    where = ("--bootstrap-server", cluster.address, "--topic", topic)
    until = ("--max-messages", len(VALUES), "--timeout-ms", 60_000)
    ran = cluster.java.attempt("kafka-console-consumer", *where, *until, *arguments)
    assert f"Processed a total of {len(VALUES)} messages" in ran.err
    return ran.out.splitlines()


def rows(said: str) -> list[list[str]]:
    """The lines of a table, without its head."""
    return [line.split() for line in said.splitlines() if line][1:]


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    cluster.run("kafka-topics", "--create", "--topic", topic, "--partitions", 3)
    keyed = "\n".join(f"k{value}\t{value}" for value in VALUES)
    parsing = ("--reader-property", "parse.key=true")
    cluster.run("kafka-console-producer", "--topic", topic, *parsing, given=keyed)
    return topic


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_a_topic_and_is_administered(
    cluster: Cluster, filled: str, protocol: str
) -> None:
    group = ("--group", f"crew-{protocol}")
    settings = ("--command-property", f"group.protocol={protocol}")
    read = consume(cluster, filled, "--from-beginning", *group, *settings)
    assert sorted(read, key=int) == VALUES

    listed = rows("head\n" + cluster.run("kafka-consumer-groups", "--list"))
    assert [group[1]] in listed
    ran = cluster.java.attempt(
        "kafka-consumer-groups", "--bootstrap-server", cluster.address, "--describe", *group
    )
    assert [(row[2], row[5]) for row in rows(ran.out)] == [("0", "0"), ("1", "0"), ("2", "0")]

    reset = ("--reset-offsets", "--to-earliest", "--topic", filled, "--execute")
    said = cluster.run("kafka-consumer-groups", *group, *reset)
    assert [row[3] for row in rows(said)] == ["0", "0", "0"]
    assert sorted(consume(cluster, filled, *group, *settings), key=int) == VALUES
    said = cluster.run("kafka-consumer-groups", *group, "--delete")
    assert "was successful" in said


def test_a_group_that_is_not_there(cluster: Cluster) -> None:
    said = cluster.run("kafka-consumer-groups", "--group", "nobody", "--delete")

    assert "GroupIdNotFoundException" in said


def test_a_transactional_producer_is_seen_by_the_tools(cluster: Cluster, topic: str) -> None:
    cluster.run("kafka-topics", "--create", "--topic", topic)
    load = ("--topic", topic, "--num-records", 200, "--record-size", 100, "--throughput", -1)
    transactional = ("--transactional-id", "tx-1", "--transaction-duration-ms", 20)

    assert "200 records sent" in cluster.run("kafka-producer-perf-test", *load, *transactional)

    listed = rows(cluster.run("kafka-transactions", "list"))
    (producer_id,) = [row[2] for row in listed if row[0] == "tx-1"]
    described = cluster.run("kafka-transactions", "describe", "--transactional-id", "tx-1")
    assert rows(described)[0][:3] == ["1", "tx-1", producer_id]
    where = ("--topic", topic, "--partition", 0)
    producers = rows(cluster.run("kafka-transactions", "describe-producers", *where))
    assert [row[0] for row in producers] == [producer_id]
    assert rows(cluster.run("kafka-transactions", "find-hanging", *where)) == []
    committed = cluster.client("consume", topic, 0, "isolation.level=read_committed")
    assert len(committed) == 200
