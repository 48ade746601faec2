"""What does a data frame with typed columns cost on its way into a topic and back?

Beside doing it by hand: `json.dumps` and `send` for each row, a consumer and `json.loads` for each
record. CPU of this process only, which has the broker too, so both ways have the same broker in
them. Run: `python -m benchmarks.data_frames [--quick] [--json]`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream import Consumer, EmbeddedBroker, Producer, TopicPartition, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 200_000
QUICK_ROWS = 20_000


def frame(count: int) -> pa.Table:
    """Orders: a number, a text and an amount."""
    return pa.table(
        {
            "user": list(range(count)),
            "name": [f"user {number}" for number in range(count)],
            "amount": [number * 0.25 for number in range(count)],
        }
    )


def send_frame(address: str, topic: str, table: pa.Table) -> None:
    """With one call."""
    with Producer(address) as producer:
        producer.send_batch(topic, table, key="user", value_format="json")


def send_by_hand(address: str, topic: str, table: pa.Table) -> None:
    """Row by row."""
    with Producer(address) as producer:
        for row in table.to_pylist():
            producer.send(topic, json.dumps(row), key=row["user"].to_bytes(8, "big"))


def read_frame(address: str, topic: str, count: int) -> pa.Table:
    """With one call."""
    read = read_topic(address, topic, columns=["key", "value"], value_format="json")
    return _of_size(read.to_arrow(), count)


def read_by_hand(address: str, topic: str, count: int) -> pa.Table:
    """Record by record."""
    rows: list[Any] = []
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(rows) < count:
            rows += [json.loads(each.value or b"") for each in consumer.poll(10)]
    return _of_size(pa.Table.from_pylist(rows), count)


def _of_size(table: pa.Table, count: int) -> pa.Table:
    assert table.num_rows == count
    return table


def _nanoseconds(count: int, call: Callable[..., object], *arguments: object) -> float:
    begin = time.process_time()
    call(*arguments)
    return (time.process_time() - begin) * 1e9 / count


def measure(count: int) -> dict[str, float]:
    """CPU per row, in nanoseconds, of each way."""
    table = frame(count)
    with EmbeddedBroker(in_memory=True) as broker:
        address = broker.bootstrap_servers
        for topic in ("frames", "rows"):
            broker.create_topic(topic, partitions=1)
        return {
            "send_batch": _nanoseconds(count, send_frame, address, "frames", table),
            "send by hand": _nanoseconds(count, send_by_hand, address, "rows", table),
            "read_topic": _nanoseconds(count, read_frame, address, "frames", count),
            "read by hand": _nanoseconds(count, read_by_hand, address, "rows", count),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--json", action="store_true", help="figures for programs")
    options = parser.parse_args()
    found = measure(QUICK_ROWS if options.quick else ROWS)
    if options.json:
        print(json.dumps(found))
        return
    for name, nanoseconds in found.items():
        print(f"{name:14} {nanoseconds:8,.0f} ns of CPU per row")


if __name__ == "__main__":
    main()
