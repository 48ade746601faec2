"""The part of `make demo` that shows our own clients: records, a table, a data frame."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow

from millstream import Consumer, Producer, TopicPartition, read_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.testing import EmbeddedBroker
    from tools.demo_batches import Row

_TOPIC = "our-readings"
_TABLE = "readings-as-table"
_PATIENCE_S = 30


def show_own_clients(broker: EmbeddedBroker, rows: Sequence[Row], partitions: int) -> None:
    """Write and read the rows as records, then as one table."""
    address = broker.bootstrap_servers
    for topic in (_TOPIC, _TABLE):
        broker.create_topic(topic, partitions)
    print("\nMillstream's own clients, with the same records:\n")
    _line("sent", len(rows), _send(address, rows), "Producer: idempotent, acks=all, lz4")
    _line("read", len(rows), _read(address, len(rows), partitions), "Consumer, record by record")
    timestamps, keys, values = zip(*rows, strict=True)
    table = pyarrow.table(
        {
            "key": pyarrow.array(keys, pyarrow.binary()),
            "value": pyarrow.array(values, pyarrow.binary()),
            "timestamp": pyarrow.array(timestamps, pyarrow.int64()),
        }
    )
    started = time.perf_counter()
    with Producer(address) as producer:
        producer.send_batch(_TABLE, table)
    _line("sent", len(rows), time.perf_counter() - started, "a pyarrow table: send_batch()")
    started = time.perf_counter()
    found = read_topic(address, _TABLE).to_arrow()
    seconds = time.perf_counter() - started
    if found.num_rows != len(rows) or sorted(found["value"].to_pylist()) != sorted(values):
        raise SystemExit(f"{len(rows)} rows were sent, and {found.num_rows} read: not equal")
    _line("read", found.num_rows, seconds, "a pyarrow table: read_topic()")


def _send(address: str, rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    with Producer(address, compression_type="lz4") as producer:
        for timestamp, key, value in rows:
            producer.send(_TOPIC, value, key=key, timestamp=timestamp)
    return time.perf_counter() - started


def _read(address: str, count: int, partitions: int) -> float:
    started = time.perf_counter()
    seen = 0
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(_TOPIC, index) for index in range(partitions)])
        while seen < count and time.perf_counter() - started < _PATIENCE_S:
            seen += len(consumer.poll(1.0))
        seconds = time.perf_counter() - started
    if seen != count:
        raise SystemExit(f"{count} records were sent, and {seen} read")
    return seconds


def _line(what: str, count: int, seconds: float, remark: str) -> None:
    print(f"  {what:6} {count:>8,} records  {count / seconds:>9,.0f} records/s  {remark}")
