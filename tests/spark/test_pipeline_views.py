"""Pipelines in Spark, from topic to topic: windows with late rows, joins, duplicates, state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream
from millstream.clock import SystemClock
from millstream.errors import CheckpointMismatch
from tests.spark.pipeline_project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing import EmbeddedBroker

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
ORDERS = """
sources:
  raw:
    format: topic
    topic: '@orders@'
    value_format: json
    value_schema: id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP
    expectations: []
views:
  orders:
    sql: SELECT value.* FROM raw
    watermark: {column: at, delay: 1 minute}
"""


@pytest.fixture
def project(tmp_path: Path, millstream_broker: EmbeddedBroker, spark: SparkSession) -> Project:
    return Project(tmp_path, millstream_broker, spark)


def order(number: int, customer: str, amount: float, minute: int, second: int = 0) -> Any:
    at = f"2026-01-01T12:{minute:02}:{second:02}Z"
    return {"id": number, "customer": customer, "amount": amount, "at": at}


def test_a_window_is_written_once_and_without_what_came_too_late(project: Project) -> None:
    readable = "[{name: readable, condition: _error IS NULL, on_violation: dead-letter}]"
    project.define(
        ORDERS.replace("[]", readable)
        + """
  sums:
    from: orders
    aggregate:
      window: {duration: 1 minute}
      group_by: [customer]
      select: {orders: count(*), total: sum(amount)}
  flat: {sql: "SELECT customer, orders, total, minute(window.start) AS minute FROM sums"}
sinks:
  sums: {from: flat, format: topic, topic: '@sums@', key: customer}
"""
    )
    project.create("orders", partitions=2)
    project.send(
        "orders", [order(1, "anna", 1, 0), order(2, "anna", 2, 0, 30), order(3, "ben", 4, 5)]
    )
    project.run()

    # The first minute is written: its second order is behind the watermark, as is a fourth one.
    project.send(
        "orders",
        [order(4, "anna", 8, 0, 59), order(5, "ben", 16, 5, 1), order(6, "x", 1, 9), "no order"],
    )
    project.run()

    assert project.rows("sums") == [
        {"customer": "anna", "orders": 2, "total": 3.0, "minute": 0},
        {"customer": "ben", "orders": 2, "total": 20.0, "minute": 5},
    ]
    assert {each["key"] for each in project.records("sums")} == {b"anna", b"ben"}
    assert sum(batch.late_rows for _, batch in project.watcher.batches) == 1
    with millstream.Admin(project.brokers) as admin:
        group = f"{project.group}.sums"
        committed = admin.list_group_offsets([group])[group]
    assert sum(each.offset for each in committed.values()) == 7
    [dead] = (
        millstream.read_topic(project.brokers, f"{project.group}.raw.dead").to_arrow().to_pylist()
    )
    assert dead["value"] == b"no order"
    headers = {each["key"]: each["value"] for each in dead["headers"]}
    assert (
        b"does not fulfil the expectation readable: _error IS NULL; "
        in (headers["millstream.retry.error.message"])
    )


FUNCTIONS = """
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.streaming import StatefulProcessor

    from millstream.spark.pipelines import view


    @view
    def doubled(spark, unique):
        return unique.withColumn("amount", F.col("amount") * 2)


    class Totals(StatefulProcessor):
        def init(self, handle):
            self._total = handle.getValueState("total", "total double")

        def handleInputRows(self, key, rows, timers):
            total = self._total.get()[0] if self._total.exists() else 0.0
            total += sum(float(each["amount"].sum()) for each in rows)
            self._total.update((total,))
            yield pd.DataFrame({"customer": [key[0]], "total": [total]})

        def close(self):
            pass
"""


def test_joins_duplicates_functions_and_state_in_one_session(project: Project) -> None:
    project.define(
        "libraries: [functions.py]\n"
        + ORDERS.replace(
            "views:",
            """
  raw_payments:
    format: topic
    topic: '@payments@'
    value_format: json
    value_schema: order_id BIGINT, paid_at TIMESTAMP
  customers: {format: csv, path: customers.csv, stream: false, options: {header: true}}
views:
  payments:
    sql: SELECT value.* FROM raw_payments
    watermark: {column: paid_at, delay: 1 minute}
""".strip("\n"),
        )
        + """
  unique: {from: orders, deduplicate: {columns: [id]}}
  paid:
    join:
      left: unique
      right: payments
      on: unique.id = payments.order_id AND paid_at BETWEEN at AND at + INTERVAL 5 MINUTES
      select: {id: unique.id, amount: amount}
  named:
    join: {left: doubled, right: customers, on: customer = name, how: left}
  totals:
    from: unique
    stateful: {processor: Totals, group_by: [customer], schema: "customer string, total double"}
sinks:
  paid: {from: paid, format: topic, topic: '@paid@'}
  named: {from: named, format: topic, topic: '@named@', value: "to_json(struct(id, amount, city))"}
  totals: {from: totals, format: topic, topic: '@totals@', output_mode: update}
""",
        functions_py=FUNCTIONS,
    )
    (project.directory / "customers.csv").write_text("name,city\nanna,Bonn\n")
    project.create("orders", "payments")
    project.send("orders", [order(1, "anna", 1, 0), order(1, "anna", 1, 0), order(2, "ben", 2, 1)])
    project.send(
        "payments",
        [
            {"order_id": 1, "paid_at": "2026-01-01T12:03:00Z"},
            {"order_id": 2, "paid_at": "2026-01-01T12:59:00Z"},
        ],
    )

    project.run()

    assert project.rows("paid") == [{"id": 1, "amount": 1.0}]
    assert project.rows("named") == [
        {"id": 1, "amount": 2.0, "city": "Bonn"},
        {"id": 2, "amount": 4.0},
    ]
    assert project.rows("totals")[-2:] == [
        {"customer": "anna", "total": 1.0},
        {"customer": "ben", "total": 2.0},
    ]


def test_a_watermark_goes_through_views_and_a_session_has_a_column(project: Project) -> None:
    project.define(
        "libraries: [functions.py]"
        + ORDERS
        + """
  large: {from: orders, python: large}
  named: {sql: "SELECT customer, at AS happened FROM large"}
  sums:
    from: large
    aggregate: {window: {duration: 1 minute}, select: {orders: count(*)}}
  visits:
    from: named
    aggregate: {session_gap: 2 minutes, group_by: [customer], select: {orders: count(*)}}
  chosen:
    from: named
    aggregate:
      session_gap: {column: happened, gap: 2 minutes}
      group_by: [customer]
      select: {orders: count(*)}
  sums_flat: {sql: "SELECT minute(window.start) AS minute, orders FROM sums"}
  visits_flat: {sql: "SELECT customer, minute(window.end) AS end, orders FROM visits"}
  chosen_flat: {sql: "SELECT customer, minute(window.end) AS end, orders FROM chosen"}
sinks:
  sums: {from: sums_flat, format: topic, topic: '@sums@'}
  visits: {from: visits_flat, format: topic, topic: '@visits@'}
  chosen: {from: chosen_flat, format: topic, topic: '@chosen@'}
""",
        functions_py="def large(orders): return orders.where('amount > 1')",
    )
    project.create("orders")
    project.send("orders", [order(1, "anna", 1, 0), order(2, "anna", 2, 0), order(3, "ben", 2, 9)])
    project.run()

    assert project.rows("sums") == [{"minute": 0, "orders": 1}]
    assert project.rows("visits") == [{"customer": "anna", "end": 2, "orders": 1}]
    assert project.rows("chosen") == [{"customer": "anna", "end": 2, "orders": 1}]


def test_a_first_run_begins_at_a_time(project: Project) -> None:
    definition = """
sources: {raw: {format: topic, topic: '@numbers@', starting: 2h}}
sinks: {out: {from: raw, format: topic, topic: '@copies@'}}
"""
    project.define(definition)
    project.create("numbers", partitions=2)
    now_ms = SystemClock().wall_ms()
    with millstream.Producer(project.brokers) as producer:
        for hours in (5, 3, 1):  # The other partition stays empty.
            producer.send(
                project.topic("numbers"),
                str(hours),
                partition=0,
                timestamp=now_ms - hours * HOUR_MS,
            )
    project.run()
    assert project.rows("copies") == [1]

    with pytest.raises(CheckpointMismatch, match=r"says where to go on.*another --storage"):
        project.run(from_ms=now_ms - 4 * HOUR_MS)
    project.define("storage: new\n" + definition)
    project.run(from_ms=now_ms - 4 * HOUR_MS)
    assert project.rows("copies") == [1, 1, 3]
