"""Spark Declarative Pipelines (`spark-pipelines run`) with topics as source and sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import millstream
from millstream.spark import java

if TYPE_CHECKING:
    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

# Each run starts three programs, two of them in Java: `make interop` has the time for it.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SPECIFICATION = """\
name: orders
storage: file://{home}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "1"
"""

TRANSFORMATIONS = '''\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
dp.create_sink(
    "large_orders",
    "millstream",
    {{"kafka.bootstrap.servers": "{servers}", "topic": "{to}"}},
)


@dp.temporary_view
def orders():
    """Every order."""
    records = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", "{servers}")
        .option("subscribe", "{from_}")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), "id bigint, amount double").alias("order")
    return records.select(order).select("order.*")


@dp.append_flow(target="large_orders")
def only_large():
    """The large ones, to a topic."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.select(F.to_json(F.struct("*")).alias("value"))
'''


def run(home: Path) -> None:
    """Run the pipeline until all that is there now is done."""
    environment = dict(os.environ) | java.environment()
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--remote", "local[2]"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_a_declarative_pipeline_reads_and_writes_topics(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark's pipelines need grpcio: pyspark[pipelines]")
    from_, to = millstream_topic("orders"), millstream_topic("large")
    servers = millstream_broker.bootstrap_servers
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(home=tmp_path))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(
        TRANSFORMATIONS.format(servers=servers, from_=from_, to=to)
    )

    def order(*amounts: float) -> None:
        with millstream.Producer(servers) as producer:
            for id_, amount in enumerate(amounts):
                producer.send(from_, json.dumps({"id": id_, "amount": amount}).encode())

    order(50, 100, 150)
    run(tmp_path)
    order(200, 1)
    run(tmp_path)

    large = millstream.read_topic(servers, to, columns=["value"]).to_arrow().column("value")
    assert sorted(json.loads(each)["amount"] for each in large.to_pylist()) == [100, 150, 200]
