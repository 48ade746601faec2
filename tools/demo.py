"""What Millstream does today, shown in a few seconds: `make demo`.

Starts a broker in this process, writes and reads sensor readings with confluent-kafka, which is
librdkafka and knows nothing of Millstream, restarts the broker and finds everything again. Then
`demo_clients` does the same with our own clients, and `demo_batches` shows what went over the wire.
With `--keep` the broker stays until Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from millstream import __version__, _accel
from millstream.testing import EmbeddedBroker
from tools.demo_batches import sensor_readings, show_codecs, show_speed
from tools.demo_clients import show_own_clients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.demo_batches import Row

TOPIC = "readings"
PARTITIONS = 4
RECORD_COUNT = 200_000
QUICK_RECORD_COUNT = 5_000
BATCH_RECORD_COUNT = 5_000
PATIENCE_S = 30


def confluent() -> Any:
    """The independent client; it has no types."""
    import confluent_kafka

    return confluent_kafka


def write(address: str, rows: Sequence[Row]) -> float:
    """Write all rows; the seconds until the last one was acknowledged."""
    faults: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            faults.append(error)

    producer = confluent().Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,  # and with it acks=all
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": len(rows) + 1,
        }
    )
    started = time.perf_counter()
    for timestamp, key, value in rows:
        producer.produce(TOPIC, value, key, timestamp=timestamp, on_delivery=delivered)
    unsent = producer.flush(PATIENCE_S)
    seconds = time.perf_counter() - started
    if unsent or faults:
        raise SystemExit(f"{unsent or len(faults)} records were not acknowledged: {faults[:1]}")
    return seconds


def read(address: str, count: int) -> tuple[list[Any], float]:
    """Read so many records of all partitions; the records, and the seconds it took."""
    client = confluent()
    consumer = client.Consumer(
        # A group must be named, and is not used: the partitions are assigned by hand.
        {"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False}
    )
    found: list[Any] = []
    started = time.perf_counter()
    deadline = started + PATIENCE_S
    consumer.assign([client.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    while len(found) < count and time.perf_counter() < deadline:
        found += consumer.consume(count - len(found), timeout=0.1)
    seconds = time.perf_counter() - started
    consumer.close()
    return found, seconds


def require_equal(rows: Sequence[Row], messages: Sequence[Any]) -> None:
    """Every record is there once, and those of a sensor are in order; else the demo ends here."""
    written, found = defaultdict(list), defaultdict(list)
    for timestamp, key, value in rows:
        written[key].append((timestamp, value))
    for message in messages:
        found[message.key()].append((message.timestamp()[1], message.value()))
    if written != found:
        raise SystemExit(f"{len(rows)} records were written, and {len(messages)} read: not equal")


def show_client(broker: EmbeddedBroker, rows: Sequence[Row]) -> None:
    """Write, read, restart, read again; with a client that is not ours."""
    size_mb = sum(len(key) + len(value) for _, key, value in rows) / 1e6
    address = broker.bootstrap_servers

    def line(what: str, seconds: float, remark: str) -> None:
        rate = f"{len(rows) / seconds:>9,.0f} records/s {size_mb / seconds:>6.1f} MB/s"
        print(f"  {what:6} {len(rows):>8,} records  {rate}  {remark}")

    name = f"confluent-kafka {confluent().__version__}"
    print(f"\n{name}, an independent client, and {PARTITIONS} partitions of {TOPIC!r}:\n")
    line("wrote", write(address, rows), "idempotent, acks=all, lz4")
    messages, seconds = read(address, len(rows))
    require_equal(rows, messages)
    line("read", seconds, "all there, in order")
    started = time.perf_counter()
    broker.restart()
    restart_ms = (time.perf_counter() - started) * 1000
    messages, seconds = read(address, len(rows))
    require_equal(rows, messages)
    line("read", seconds, f"again, after a restart of {restart_ms:.0f} ms")


def show_connections(address: str, *, is_kept: bool) -> None:
    """What to type to use a broker."""
    if is_kept:
        print(f"\nThe broker is at {address} until Ctrl-C. From another terminal:\n")
    else:
        address = "127.0.0.1:9092"
        print("\nA broker of your own, until Ctrl-C:\n")
        print(f"  .venv/bin/millstream server start --data /tmp/millstream --listen {address}")
        print("\nand from another terminal, with any Kafka client:\n")
    code = (
        "from millstream import Producer as P; "
        f"p = P('{address}'); print(p.send('{TOPIC}', 'hello').result()); p.close()"
    )
    print(f"  export MILLSTREAM_BOOTSTRAP_SERVER={address}")
    print(f"  .venv/bin/millstream topics create {TOPIC} --partitions {PARTITIONS} --if-not-exists")
    print(f"  echo hello | kcat -P -b {address} -t {TOPIC}")
    print(f"  kcat -C -b {address} -t {TOPIC} -e")
    print(f'  .venv/bin/python -c "{code}"')
    print(f"  .venv/bin/millstream perf produce {TOPIC} --duration 5")


def main(arguments: Sequence[str] | None = None) -> int:
    """Show everything, in order."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="with few records")
    parser.add_argument("--keep", action="store_true", help="keep the broker until Ctrl-C")
    options = parser.parse_args(arguments)
    kernel = "compiled" if _accel.COMPILED else "plain Python"
    print(f"Millstream {__version__}, kernel: {kernel}")
    rows = sensor_readings(QUICK_RECORD_COUNT if options.quick else RECORD_COUNT)

    broker = EmbeddedBroker()
    started = time.perf_counter()
    with broker:
        broker.create_topic(TOPIC, PARTITIONS)
        ms = (time.perf_counter() - started) * 1000
        print(
            f"\nA Kafka broker, in this process, ready in {ms:.0f} ms: {broker.bootstrap_servers}"
        )
        show_client(broker, rows)
        show_own_clients(broker, rows, PARTITIONS)
        show_codecs(rows[:BATCH_RECORD_COUNT])
        show_speed(rows[:BATCH_RECORD_COUNT])
        show_connections(broker.bootstrap_servers, is_kept=options.keep)
        if options.keep:
            wait_for_interrupt()
    print("\nREADME.md goes on from here; `make test` runs every check.")
    return 0


def wait_for_interrupt() -> None:
    """Until Ctrl-C, or SIGTERM."""
    sys.stdout.flush()
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()


if __name__ == "__main__":
    raise SystemExit(main())
