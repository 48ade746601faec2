"""Does a broker's memory stay flat? Everything that clients and strangers do, at a small pace.

    python -m tests.integration.faults.memory --seconds 3600

Producers, a group whose members come and go, transactions that end both ways, readers of tables and
damaged requests of most APIs work beside each other on a broker process whose topics keep little.
Memory is looked at once a second. It has a quarter of the time to settle; after that its median may
not grow by more than `GROWTH_BYTES_MAX`. `make sanitize` runs the same for its many threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream import Admin, Consumer, NewTopic, Producer, read_topic
from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import encode_request
from millstream.protocol.layout import layout_of
from tests.fuzz.frames import NAMES, fill, mutate
from tests.integration.faults.harness import broker_on
from tests.strategies.messages import message_class, versions_of
from tests.waiting import let_time_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.faults.harness import Broker

GROWTH_BYTES_MAX = 4 << 20
TOPIC = "load"
PARTITIONS = 4
PAUSE_SECONDS = 0.05
RECORD_BYTES = (10, 10, 100, 1000, 1000, 10_000, 900_000)
LARGE_FRAME_BYTES = 3 << 20
"""Larger than what is received and sent on the loop."""
SAMPLE_SECONDS = 1.0
SETTINGS = (
    "log.retention.bytes=1000000",
    "log.retention.check.interval.ms=1000",
    "log.segment.bytes=1048576",
    "log.segment.delete.delay.ms=1000",
    "producer.id.expiration.ms=5000",
    "producer.id.expiration.check.interval.ms=1000",
    "auto.create.topics.enable=false",
)
LEFT_ALONE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLED_SHUTDOWN,
    }
)
"""APIs whose damaged requests may rightly make a broker larger, or end it."""


class Report(NamedTuple):
    """What a run has shown."""

    settled_bytes: float
    end_bytes: float
    work: dict[str, int]

    @property
    def growth_bytes(self) -> float:
        """From the second quarter of the run to the last."""
        return self.end_bytes - self.settled_bytes

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.work.items()))
        return (
            f"memory {self.settled_bytes / 1e6:.1f} MB in the second quarter, "
            f"{self.end_bytes / 1e6:.1f} MB in the last; {done}"
        )


class Load:
    """Threads that work until they are told to end."""

    def __init__(self, broker: Broker, seed: int, pause: float) -> None:
        """With so many seconds without work after each piece of it."""
        self._broker = broker
        self._seed = seed
        self._pause = pause
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self.work: dict[str, int] = {}

    def run(self, seconds: float, on_sample: Callable[[int], None]) -> None:
        """Work for so long; raises what a worker raised."""
        kinds = (self._send, self._consume, self._transact, self._read, self._disturb)
        threads = [
            threading.Thread(target=self._repeat, args=(kind, Random(self._seed + number)))
            for number, kind in enumerate(kinds)
        ]
        for each in threads:
            each.start()
        clock = SystemClock()
        end_ms = clock.monotonic_ms() + round(seconds * 1000)
        while clock.monotonic_ms() < end_ms and not self._failures:
            let_time_pass(SAMPLE_SECONDS)
            on_sample(self._broker.memory_bytes)
        self._is_over.set()
        for each in threads:
            each.join()
        if self._failures:
            raise self._failures[0]

    def _repeat(self, piece: Callable[[Random], None], random: Random) -> None:
        name = piece.__name__.strip("_")
        try:
            while not self._is_over.is_set():
                piece(random)
                self.work[name] = self.work.get(name, 0) + 1
                let_time_pass(self._pause)
        except BaseException as error:
            self._failures.append(error)

    def _send(self, random: Random) -> None:
        codec: Any = random.choice(["none", "gzip", "lz4", "zstd"])
        with Producer(self._broker.address, compression_type=codec) as producer:
            for _ in range(20):
                for _ in range(random.randint(1, 50)):
                    producer.send(TOPIC, random.randbytes(random.choice(RECORD_BYTES)))
                producer.flush()
                let_time_pass(self._pause)

    def _consume(self, random: Random) -> None:
        protocol: Any = random.choice(["classic", "consumer"])
        with Consumer(
            self._broker.address, TOPIC, group_id=f"group-{protocol}", group_protocol=protocol
        ) as consumer:
            for _ in range(random.randint(1, 30)):
                consumer.poll(0.2)
            consumer.commit()

    def _transact(self, random: Random) -> None:
        transactional_id = f"transactions-{random.randrange(3)}"
        with Producer(self._broker.address, transactional_id=transactional_id) as producer:
            for _ in range(10):
                with suppress(ZeroDivisionError), producer.transaction():
                    producer.send(TOPIC, random.randbytes(100))
                    if random.random() < 0.3:
                        raise ZeroDivisionError
                let_time_pass(self._pause)

    def _read(self, random: Random) -> None:
        isolation: Any = random.choice(["read_committed", "read_uncommitted"])
        # Retention may take the records while they are read.
        with suppress(MillstreamError):
            read_topic(self._broker.address, TOPIC, isolation_level=isolation).to_arrow()

    def _disturb(self, random: Random) -> None:
        """Requests on one connection until the broker has enough of them."""
        with self._broker.connect() as connection, suppress(OSError):
            connection.settimeout(0.2)
            for _ in range(20):
                connection.sendall(damaged_request(random))
                with suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        return


def damaged_request(random: Random) -> bytes:
    """A frame that is nearly a request."""
    while True:
        request = message_class(random.choice(NAMES))
        if request.__name__.endswith("Request") and request.KEY not in LEFT_ALONE:
            break
    version = random.choice(versions_of(request))
    frame = encode_request(fill(layout_of(request, version), random), version, 1, "fuzz")
    body = mutate(frame[4:], random) if random.random() < 0.8 else frame[4:]
    if random.random() < 0.05:
        body += random.randbytes(LARGE_FRAME_BYTES)
    return len(body).to_bytes(4, "big") + body


def soak(seconds: float, data: Path, seed: int = 1, pause: float = PAUSE_SECONDS) -> Report:
    """Load a broker for so long."""
    settings = [word for each in SETTINGS for word in ("--set", each)]
    samples: list[int] = []
    with broker_on(data, *settings) as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).raise_first()
        load = Load(broker, seed, pause)
        load.run(seconds, samples.append)
        broker.still_serves()
        broker.stop()
    quarter = max(1, len(samples) // 4)
    settled = samples[quarter : 2 * quarter] or samples
    return Report(median(settled), median(samples[-quarter:]), load.work)


def main() -> int:
    """Run from the command line; 1 if memory grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=PAUSE_SECONDS, help="seconds")
    parser.add_argument("--growth-bytes", type=int, default=GROWTH_BYTES_MAX)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        report = soak(given.seconds, Path(base), given.seed, given.pause)
    is_flat = report.growth_bytes <= given.growth_bytes
    sys.stdout.write(f"{'flat' if is_flat else 'GREW'}: {report}\n")
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
