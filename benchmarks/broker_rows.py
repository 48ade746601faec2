"""The rows of `benchmarks.broker`: what clients do, and one round of it against a broker.

Each round has a topic of its own, is checked (every answer by the load generator, the end offsets
here) and leaves nothing on the disk.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.load import cpu_seconds, run_program
from millstream.clock import SystemClock
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import ProduceRequest, produce
from millstream.records import RecordBatchBuilder
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.broker_processes import BrokerProcess

Figures = dict[str, float]

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"100B": 100, "1KiB": KIB, "16KiB": 16 * KIB, "64KiB": 64 * KIB, "1MiB": MIB}
PARTITIONS = 4
RECORD_BYTES = KIB
ROUND_BYTES_MAX = 768 * MIB
WARM_BYTES_MAX = 128 * MIB
SPARE_BYTES = 256 * MIB
FETCH_PARTITION_BYTES = 48 * MIB
FETCH_PARTITION_BATCHES = 8192
FETCH_BATCH_BYTES = 16 * KIB
FOLLOW_PAUSE_US = 1000
_UNLIMITED = 1 << 40
_LONG_SECONDS = 600
_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a round lasts."""

    seconds: float
    warm_seconds: float
    follow_count: int


class Row(Protocol):
    """One line of the result."""

    @property
    def name(self) -> str:
        """For `--rows` and the JSON."""
        ...

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """The bytes that producers send."""

    data: bytes
    records: int


def build_batch(size: int) -> Batch:
    """One record of 100 bytes, or records of 1 KiB until the batch has nearly the size."""
    builder, now_ms, count = RecordBatchBuilder(), SystemClock().wall_ms(), 1
    value_bytes = min(size, RECORD_BYTES)
    if size > RECORD_BYTES:
        count = (size - 128) // (RECORD_BYTES + 10)
        value_bytes = RECORD_BYTES
    builder.extend((now_ms, None, bytes(value_bytes)) for _ in range(count))
    return Batch(builder.build(), count)


def produce_frame(topic_id: bytes, partition: int, batch: Batch) -> bytes:
    """A Produce request of version 13, as a Java producer of today sends it."""
    data = produce.PartitionProduceData(index=partition, records=batch.data)
    topic = produce.TopicProduceData(topic_id=Uuid(topic_id), partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, 13, 0, "bench")


class Topic:
    """A topic for one round; gone, with its files, at the end."""

    def __init__(self, broker: BrokerProcess, batch: Batch, partitions: int = PARTITIONS) -> None:
        self.name = f"bench-{next(_names)}"
        self.partitions = partitions
        self.batch = batch
        self._broker = broker
        self._sent = 0
        self.id = broker.create_topic(self.name, partitions)
        self._frames = tempfile.NamedTemporaryFile(prefix="millstream-frames-")  # noqa: SIM115

    def __enter__(self) -> Topic:
        for partition in range(self.partitions):
            self._frames.write(produce_frame(self.id, partition, self.batch))
        self._frames.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.close()
        self._broker.delete_topic(self.name)

    @property
    def frames(self) -> Path:
        """The file with one request per partition."""
        return Path(self._frames.name)

    def produce(
        self, connections: int, window: int, seconds: float, requests: int = _UNLIMITED
    ) -> dict[str, Any]:
        """Run producers; `requests` of each connection at most."""
        port = self._broker.port
        report = run_program(
            "clients", "produce", port, self.frames, connections, window, seconds, requests
        )
        self.count(report["requests"])
        return report

    def count(self, requests: int) -> None:
        """Remember what was acknowledged."""
        self._sent += requests * self.batch.records

    def check(self) -> None:
        """What was acknowledged is there, and nothing else."""
        found = self._broker.end_offsets(self.name, self.partitions)
        assert found == self._sent, f"{self._broker.name}: {found} records of {self._sent}"


def reuse_pages(size: int) -> None:
    """Have the next files of so many bytes be written into pages that were used a moment ago.

    A virtual machine gives free memory back to its host, here after two seconds, and has it again
    page by page: 1 MiB of a file took 2.5 ms then, instead of 0.26. It has to be a file, for others
    get their pages elsewhere, and it is gone before anybody writes it to the disk.
    """
    block = bytes(MIB)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range((size + SPARE_BYTES) // MIB):
            file.write(block)


def measured(report: dict[str, Any], used: float, size: int) -> Figures:
    """The figures of a row from a report of the load generator and the broker's CPU time."""
    requests, seconds = report["requests"], report["seconds"]
    return {
        "requests_per_second": requests / seconds,
        "mb_per_second": requests * size / seconds / 1e6,
        "cpu_us": used / requests * 1e6,
        "cpu_us_per_mb": used / (requests * size) * 1e12,
        "p50_us": report["p50_us"],
        "p99_us": report["p99_us"],
        "client_us": report["cpu_seconds"] / requests * 1e6,
        "client_busy": report["cpu_seconds"] / seconds,
    }


@dataclass(frozen=True, slots=True)
class ProduceRow:
    """Producers in a closed loop."""

    size: str
    connections: int
    window: int

    @property
    def name(self) -> str:
        """Size, connections, window."""
        return f"produce-{self.size}-c{self.connections}-w{self.window}"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        batch = build_batch(SIZES[self.size])
        size = len(batch.data)
        with Topic(broker, batch) as topic:
            load = (self.connections, self.window)
            warm, limit = (self._requests(each, size) for each in (WARM_BYTES_MAX, ROUND_BYTES_MAX))
            found = topic.produce(*load, effort.warm_seconds, warm)
            likely = found["requests"] / found["seconds"] * effort.seconds * size
            reuse_pages(min(round(likely), ROUND_BYTES_MAX))
            before = cpu_seconds(broker.pid)
            report = topic.produce(*load, effort.seconds, limit)
            used = cpu_seconds(broker.pid) - before
            topic.check()
        return measured(report, used, size)

    def _requests(self, bytes_max: int, size: int) -> int:
        return max(self.window, bytes_max // size // self.connections)


@dataclass(frozen=True, slots=True)
class FetchRow:
    """Consumers that read through what is there, in sessions, from the page cache."""

    size: str
    connections: int

    @property
    def name(self) -> str:
        """Size, connections."""
        return f"fetch-{self.size}-c{self.connections}"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        wanted = SIZES[self.size]
        batch = build_batch(min(wanted, FETCH_BATCH_BYTES))
        per_fetch = max(1, wanted // len(batch.data))
        fetch_bytes = per_fetch * len(batch.data)
        batches = min(FETCH_PARTITION_BYTES // len(batch.data), FETCH_PARTITION_BATCHES)
        batches -= batches % per_fetch
        with Topic(broker, batch, self.connections) as topic:
            topic.produce(self.connections, 5, _LONG_SECONDS, batches)
            topic.check()
            end_offset = batches * batch.records
            clients = ("clients", "fetch", broker.port, topic.id.hex(), self.connections)
            load = (*clients, self.connections, fetch_bytes, end_offset)
            run_program(*load, effort.warm_seconds, _UNLIMITED)
            before = cpu_seconds(broker.pid)
            report = run_program(*load, effort.seconds, _UNLIMITED)
            used = cpu_seconds(broker.pid) - before
        return measured(report, used, round(report["bytes"] / report["requests"]))


@dataclass(frozen=True, slots=True)
class FollowRow:
    """A producer and a consumer in a long poll, one record after another."""

    @property
    def name(self) -> str:
        """The only one of its kind."""
        return "follow-100B"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once: of the send's acknowledgement, and of the record's arrival."""
        with Topic(broker, build_batch(SIZES["100B"]), 1) as topic:
            clients = ("clients", "follow", broker.port, topic.id.hex(), topic.frames)
            warm = effort.follow_count // 4
            run_program(*clients, 0, warm, FOLLOW_PAUSE_US)
            before = cpu_seconds(broker.pid)
            report = run_program(*clients, warm, effort.follow_count, FOLLOW_PAUSE_US)
            used = cpu_seconds(broker.pid) - before
            topic.count(warm + effort.follow_count)
            topic.check()
        return {
            "cpu_us": used / report["requests"] * 1e6,
            "p50_us": report["p50_us"],
            "p99_us": report["p99_us"],
            "arrival_p50_us": report["arrival_p50_us"],
            "arrival_p99_us": report["arrival_p99_us"],
        }


_DEFAULT_PRODUCE = {
    "100B": ((1, 1), (4, 5), (16, 1), (64, 1)),
    "16KiB": ((1, 1), (4, 5), (64, 1)),
    "64KiB": ((1, 1), (4, 5)),
    "1MiB": ((1, 1), (4, 5)),
}


def rows(*, full: bool) -> list[Row]:
    """Every row, or those that say the most."""
    loads: dict[str, Iterable[tuple[int, int]]] = dict(_DEFAULT_PRODUCE)
    if full:
        loads = dict.fromkeys(loads, tuple(itertools.product((1, 4, 16, 64), (1, 5))))
    producing = [ProduceRow(size, *load) for size, each in loads.items() for load in each]
    fetching = [
        FetchRow(size, count) for size in ("1KiB", "16KiB", "64KiB", "1MiB") for count in (1, 4)
    ]
    return [*producing, *fetching, FollowRow()]


def median(rounds: list[Figures]) -> Figures:
    """Of each figure."""
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
