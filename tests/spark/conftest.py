"""What tests with Spark share: one session and one broker for each worker, and fresh directories.

Starting Spark takes seconds, so nobody but a test of starting starts another: use `spark`. Brokers
and topics are the fixtures `millstream_broker` and `millstream_topic` of Millstream's own plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of this worker: local[2], two shuffle partitions, no page."""
    from millstream.spark.sessions import session

    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": home / "warehouse",
        "spark.local.dir": home / "local",
        "spark.driver.memory": "768m",
        # A test's few rows are not worth the compiling of their plan.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={home}",
    }
    try:
        spark = session("millstream-tests", "local[2]", **settings)
    except InvalidArgument as missing:
        pytest.skip(str(missing))
    yield spark
    spark.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint that nobody else has."""
    return str(tmp_path / "checkpoint")
