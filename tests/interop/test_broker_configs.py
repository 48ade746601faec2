"""kafka-configs and kafka-client-metrics against a broker of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.tools import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]


def alter(cluster: Cluster, *arguments: object) -> str:
    return cluster.run("kafka-configs", "--alter", *arguments)


def described(cluster: Cluster, *arguments: object) -> dict[str, str]:
    """Setting to value and synonyms."""
    said = cluster.run("kafka-configs", "--describe", *arguments)
    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    return {line.split("=")[0]: line.split("=", 1)[1] for line in lines}


def test_topics(cluster: Cluster, topic: str) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    cluster.run("kafka-topics", "--create", "--topic", topic, "--config", "flush.ms=5")

    alter(cluster, *of_topic, "--add-config", "retention.ms=77000,cleanup.policy=[compact,delete]")
    changed = described(cluster, *of_topic)
    assert set(changed) == {"flush.ms", "retention.ms", "cleanup.policy"}
    assert changed["cleanup.policy"].startswith("compact,delete ")
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=77000" in changed["retention.ms"]

    alter(cluster, *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    everything = described(cluster, *of_topic, "--all")
    assert everything["flush.ms"].startswith("5 ")
    assert everything["retention.ms"].startswith("-1 ")
    assert "STATIC_BROKER_CONFIG:log.retention.ms=-1" in everything["retention.ms"]
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete" in everything["cleanup.policy"]


def test_what_a_topic_cannot_have_is_refused(cluster: Cluster, topic: str) -> None:
    cluster.run("kafka-topics", "--create", "--topic", topic)
    change = ("--alter", "--entity-type", "topics", "--entity-name", topic)

    for wrong in ("retention.ms=many", "no.such.setting=1", "cleanup.policy=burn"):
        refused = cluster.refusal("kafka-configs", *change, "--add-config", wrong)
        assert "InvalidConfigurationException" in refused
        assert wrong.split("=")[0] in refused


def test_one_broker_and_all_brokers(cluster: Cluster) -> None:
    brokers, one = ("--entity-type", "brokers"), ("--entity-name", 1)
    alter(cluster, *brokers, "--entity-default", "--add-config", "log.retention.ms=8000000")
    alter(cluster, *brokers, *one, "--add-config", "log.retention.ms=7000000")

    of_one = described(cluster, *brokers, *one)["log.retention.ms"]
    assert of_one.startswith("7000000 ")
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=7000000" in of_one
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=8000000" in of_one
    assert described(cluster, *brokers, "--entity-default")["log.retention.ms"].startswith("8000")
    everything = described(cluster, *brokers, *one, "--all")
    assert len(everything) > 100
    assert everything["delegation.token.secret.key"].startswith("null sensitive=true")

    for whose in (one, ("--entity-default",)):
        alter(cluster, *brokers, *whose, "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in described(cluster, *brokers, *one)
    change = ("--alter", *brokers, *one, "--add-config", "log.dirs=/elsewhere")
    assert "InvalidRequestException" in cluster.refusal("kafka-configs", *change)


def test_a_brokers_default_reaches_its_topics(cluster: Cluster, topic: str) -> None:
    brokers = ("--entity-type", "brokers", "--entity-default")
    cluster.run("kafka-topics", "--create", "--topic", topic)

    alter(cluster, *brokers, "--add-config", "log.segment.bytes=2000000")
    everything = described(cluster, "--entity-type", "topics", "--entity-name", topic, "--all")
    assert everything["segment.bytes"].startswith("2000000 ")
    alter(cluster, *brokers, "--delete-config", "log.segment.bytes")


def test_subscriptions_of_client_metrics(cluster: Cluster) -> None:
    metrics = ("--entity-type", "client-metrics", "--entity-name", "some")
    wanted = "interval.ms=5000,metrics=org.apache,match=[client_id=.*]"

    alter(cluster, *metrics, "--add-config", wanted)
    assert described(cluster, *metrics)["match"].startswith("client_id=.* ")
    assert "some" in cluster.run("kafka-client-metrics", "--list")
    assert "interval.ms=5000" in cluster.run("kafka-client-metrics", "--describe")
    cluster.run("kafka-client-metrics", "--delete", "--name", "some")

    assert "some" not in cluster.run("kafka-client-metrics", "--list")
    change = ("--alter", *metrics, "--add-config", "interval.ms=1")
    assert "InvalidRequestException" in cluster.refusal("kafka-configs", *change)


def test_groups(cluster: Cluster) -> None:
    group = ("--entity-type", "groups", "--entity-name", "crew")

    alter(cluster, *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "resource GROUP crew" in cluster.client("cluster")
    shown = described(cluster, *group)["consumer.session.timeout.ms"]
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in shown
    alter(cluster, *group, "--delete-config", "consumer.session.timeout.ms")

    assert "resource GROUP crew" not in cluster.client("cluster")
    change = ("--alter", *group, "--add-config", "consumer.session.timeout.ms=1")
    assert "Invalid" in cluster.refusal("kafka-configs", *change)


def test_loggers(cluster: Cluster) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", 1)

    assert described(cluster, *loggers)["root"].startswith("INFO ")
    alter(cluster, *loggers, "--add-config", "millstream.server=WARN")
    assert described(cluster, *loggers)["millstream.server"].startswith("WARN ")
    alter(cluster, *loggers, "--delete-config", "millstream.server")

    assert described(cluster, *loggers)["millstream.server"].startswith("INFO ")
