"""The pipeline of `make demo`: every order that is sent comes out once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.spark.pipelines.runner import SilentWatcher
from millstream.testing import EmbeddedBroker
from tools import demo_pipeline
from tools.demo_orders import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_every_order_is_accounted_for(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        pipeline = demo_pipeline.prepare(broker, tmp_path)
        address = broker.bootstrap_servers

        result = demo_pipeline.follow(
            pipeline, spark, address, SilentWatcher(), (2_000, 0.5), tmp_path
        )

    assert result.error is None
    assert demo_pipeline.differences(result.ledger, result.topics, result.files) == []
    assert result.ledger.sent == result.ledger.good + result.ledger.dead.total()
    assert set(result.ledger.dead) == {"is_an_order", "is_in_time"}


def test_an_order_that_is_missing_is_told() -> None:
    ledger = Ledger()
    ledger.orders[0, "DE"] = 2
    found = demo_pipeline.Outcome()
    found.orders[0, "DE"] = 1

    assert demo_pipeline.differences(ledger, found, found)[0] == (
        "orders in the topic: 2 expected, 1 found"
    )
