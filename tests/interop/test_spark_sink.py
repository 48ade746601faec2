"""Spark's exactly-once sink with Apache Kafka as its target, with transactions of both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import millstream
from millstream.client.admin.cluster import FeatureUpdate
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker
from tests.spark.exactly_once_soak import Soak

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

PLAN = {
    "0-0-produced": "task",
    "0-1-marked": "task",
    "0-2-committing": "task",
    "1-0-committed": "task",
    "1-1-producing": "zombie",
    "1-2-initialized": "task",
    "2-driver-finishing": "driver",
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Apache Kafka, empty."""
    scratch = tmp_path / "kafka"
    scratch.mkdir()
    broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
    broker.format()
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("version", [2, 1])
def test_every_row_is_committed_once_whatever_is_killed(
    kafka: KafkaBroker, tmp_path: Path, version: int
) -> None:
    if version < 2:
        with millstream.Admin(kafka.address) as admin:
            lower = {"transaction.version": FeatureUpdate(version, "safe_downgrade")}
            admin.update_features(lower).raise_first()

    outcome = Soak(tmp_path / "soak", kafka.address, PLAN, seed=1).run()

    assert outcome.kills == {"task": 5, "zombie": 1, "driver": 1}
