"""The fixture `cluster`: three nodes of Apache Kafka, whole at the beginning of each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.cluster.kafka_cluster import KafkaCluster
from tests.interop.java_client import require_broker_jars

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One for all tests here."""
    scratch = tmp_path_factory.mktemp("cluster")
    cluster = KafkaCluster(require_broker_jars(scratch), scratch)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(kafka_cluster: KafkaCluster) -> KafkaCluster:
    """Healed, whatever the test before has done."""
    kafka_cluster.heal()
    return kafka_cluster
