"""The same Spark jobs with Spark's own Kafka connector: the same rows, from and to both brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Producer, TopicPartition
from millstream.clock import SystemClock
from millstream.testing import EmbeddedBroker
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.spark_connector import connector_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow]

FORMATS = ("kafka", "millstream")
COLUMNS = ["topic", "key", "value", "partition", "timestamp", "headers"]
WRITES: dict[str, dict[str, Any]] = {
    "write": {"columns": COLUMNS},
    "write-stream": {"columns": COLUMNS, "is_stream": True},
    "write-one-topic": {"columns": ["key", "value", "headers", "partition"]},
    "write-stream-one-topic": {
        "columns": ["key", "value", "headers", "partition"],
        "is_stream": True,
    },
}
"""Columns of the frame that is written; without that of the topic, an option says where to."""
ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS_MAX = 900


@contextmanager
def millstream_address(scratch: Path) -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def kafka_address(scratch: Path) -> Iterator[str]:
    jars = require_broker_jars(scratch)
    broker = KafkaBroker(jars, scratch / "data", scratch)
    broker.format()
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def fill(bootstrap: str, start_ms: int) -> None:
    """Topics with headers and nulls, with transactions that end both ways, with deleted records."""
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=3)
        admin.create_topic("payments", partitions=1)
        admin.create_topic("lost", partitions=2)
        for topic in ("first", "second"):
            for job in WRITES:
                for kind in FORMATS:
                    admin.create_topic(f"{topic}-{job}-{kind}", partitions=3)
    with Producer(bootstrap) as producer:
        for number in range(90):
            producer.send(
                "orders",
                None if number % 7 == 0 else b"v%d" % number,
                key=None if number % 5 == 0 else b"k%d" % number,
                partition=number % 3,
                timestamp=start_ms + 1000 * number,
                headers=[("h", b"x"), ("n", None)] if number % 2 else [],
            )
            if number % 10 == 9:
                producer.flush()
        for number in range(20):
            producer.send("lost", b"l%d" % number, partition=number % 2)
    with Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition("lost", 0): 4}).raise_first()
    with Producer(bootstrap, transactional_id="t") as producer:
        for number in range(6):
            producer.begin_transaction()
            producer.send("payments", b"p%d" % number, timestamp=start_ms + number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def jobs_of(bootstrap: str, start_ms: int) -> dict[str, dict[str, Any]]:
    base = {"kafka.bootstrap.servers": bootstrap}
    orders = {**base, "subscribe": "orders"}
    committed = {**base, "subscribe": "payments", "kafka.isolation.level": "read_committed"}

    def offsets(*of_partitions: int) -> str:
        return json.dumps({"orders": {str(n): at for n, at in enumerate(of_partitions)}})

    def times(*of_partitions: int) -> str:
        at = {str(n): start_ms + 1000 * second for n, second in enumerate(of_partitions)}
        return json.dumps({"orders": at})

    lost = {
        **base,
        "subscribe": "lost",
        "startingOffsets": json.dumps({"lost": {"0": 1, "1": 2}}),
        "failOnDataLoss": "false",
    }
    return {
        "everything": {**orders, "includeHeaders": "true"},
        "pattern": {**base, "subscribePattern": "(orders|pay.*)", "minPartitions": "7"},
        "assigned": {**base, "assign": '{"orders": [2, 0]}'},
        "offsets": {
            **orders,
            "startingOffsets": offsets(3, -2, 29),
            "endingOffsets": offsets(20, 11, -1),
        },
        "times": {
            **orders,
            "startingTimestamp": str(start_ms + 20_500),
            "endingTimestamp": str(start_ms + 70_000),
        },
        "committed": committed,
        "uncommitted": {**base, "subscribe": "payments", "maxRecordsPerPartition": "3"},
        "stream": {
            **orders,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "45",
            "is_stream": True,
        },
        "stream-committed": {**committed, "startingOffsets": "earliest", "is_stream": True},
        "offsets-by-time": {
            **orders,
            "startingOffsetsByTimestamp": times(10, 40, 85),
            "endingOffsetsByTimestamp": times(50, 45, 1000),
        },
        "time-after-the-end": {
            **orders,
            "startingOffsetsByTimestamp": times(60, 1000, 1000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "stream-by-time": {
            **orders,
            "startingOffsetsByTimestamp": times(60, 1000, 1000),
            "startingOffsetsByTimestampStrategy": "latest",
            "is_stream": True,
        },
        "stream-min": {
            **orders,
            "startingOffsets": "earliest",
            "minOffsetsPerTrigger": "20",
            "maxOffsetsPerTrigger": "45",
            "is_stream": True,
        },
        "lost": {**lost},
        "lost-stream": {**lost, "is_stream": True},
    }


def writes_of(bootstrap: str) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "kafka.bootstrap.servers": bootstrap,
            "is_write": True,
            "topics": [f"first-{name}", f"second-{name}"],
            **job,
        }
        for name, job in WRITES.items()
    }


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("address", "chosen"),
    [
        (millstream_address, None),
        # What the connectors make of options does not depend on the broker.
        (kafka_address, ("everything", "committed", "stream", "write")),
    ],
)
def test_both_connectors_read_and_write_the_same_rows(
    address: Any, chosen: tuple[str, ...] | None, tmp_path: Path
) -> None:
    jars = connector_jars()
    start_ms = SystemClock().wall_ms() - 3_600_000
    jobs, output = tmp_path / "jobs.json", tmp_path / "rows.json"
    with address(tmp_path) as bootstrap:
        fill(bootstrap, start_ms)
        wanted = jobs_of(bootstrap, start_ms) | writes_of(bootstrap)
        jobs.write_text(json.dumps({name: wanted[name] for name in chosen or wanted}))
        arguments = [",".join(map(str, jars)), str(jobs), str(output)]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.interop.spark_rows", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]

    found = json.loads(output.read_text())
    for name in found.keys() & WRITES:
        check_times(found[name]["millstream"], WRITES[name]["columns"])
    for name, rows in found.items():
        assert rows["millstream"] == rows["kafka"], name
    assert len(found["everything"]["millstream"]) == 90
    assert len(found["committed"]["millstream"]) == 3
    assert sum(found["stream"]["millstream"][0]) == 90
    assert len(found["write"]["millstream"]) == 5
    if chosen is None:
        assert len(found["lost"]["millstream"]) == 6 + 8
        assert len(found["offsets-by-time"]["millstream"]) == 13 + 2 + 2
        assert len(found["time-after-the-end"]["millstream"]) == 10
        assert found["stream-by-time"]["millstream"][0] == [10]
        assert found["lost-stream"]["millstream"][0] == [6 + 8]
        assert sum(found["stream-min"]["millstream"][0]) == 90


def check_times(rows: list[list[Any]], columns: list[str]) -> None:
    """A column `timestamp` is the record's; Spark's connector has none, so it is left out then."""
    at = 5
    if "timestamp" in columns:
        times = sorted(row[at] for row in rows)
        assert times == [1_767_225_600_000_000 + 1000 * number for number in range(123, 128)]
    for row in rows:
        row[at] = None
