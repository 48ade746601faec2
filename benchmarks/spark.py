"""Our Spark source and sink beside Spark's own Kafka connector, on the same broker, interleaved.

    python -m benchmarks.spark [--quick] [--json] [--rows PATTERN] [--without-peer]

One Spark session, `local[2]` with the settings of `millstream.spark.session`, runs the jobs of both
interleaved: `format("millstream")` and `format("kafka")`. The broker is a `millstream server`
process; its CPU is not counted. CPU per row is that of Spark's JVM and all its Python workers. Of
all rounds the median counts, after a warm-up of each.

`read-*` reads a topic of 4 partitions with all columns into Spark's sink that keeps nothing.
`write-*` writes rows that are cached in Spark's memory, keys of 16 bytes; both at least once.
`floor` is how long a micro-batch of one record takes from topic to topic, as Spark's own progress
tells it (triggerExecution), one at a time, with its stages; `floor-source` the same into a sink
that keeps nothing; `floor-exactly-once` the same with `delivery=exactly-once` for ours, which the
other has not. Both run with their defaults, but for `idleWaitMs=0` of ours: the time in which an
idle source waits for records would count as the batch's. The session, which both share, sets
permissions of files directly (`spark.millstream.directPermissions`). A JVM needs some hundred
micro-batches until it is as quick as it becomes: before the first of these rows each contender
takes 320 from topic to topic, interleaved, that do not count. In those no fetch waits for records
(`kafka.fetch.max.wait.ms=1`), or Spark's connector would need minutes for them. `--quick` leaves
them out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from benchmarks.broker import Report, wanted
from benchmarks.broker_bars import Bar, verdicts
from benchmarks.broker_processes import HOST, SETTINGS, BrokerProcess, MillstreamLauncher
from millstream import Producer
from millstream.spark import session
from tests.interop.spark_connector import connector_jars

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS: Final = 4
OURS, PEER = "millstream", "kafka"
SIZES: Final = {"100B": 100, "1KiB": 1024}
BARS: Final = (
    Bar("read-*_rows_per_second", ratio_min=1),
    Bar("write-*_rows_per_second", ratio_min=1),
    Bar("floor_ms", ours_max=60),
    Bar("floor-source_ms", ours_max=60),
)
STAGES: Final = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
"""Of a micro-batch, as Spark's progress names them."""
_CHUNK_ROWS: Final = 50_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BATCH_SECONDS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured."""

    rows: int
    rounds: int
    batches: int
    """Of each query: a query is started for every round, and its first half is for warming up."""
    warm_up_queries: int
    """Of each contender, with as many micro-batches, before all queries that count."""


QUICK: Final = Effort(rows=100_000, rounds=3, batches=20, warm_up_queries=0)
FULL: Final = Effort(rows=2_000_000, rounds=5, batches=40, warm_up_queries=8)


@dataclass(frozen=True, slots=True)
class Floor:
    """One way to measure micro-batches."""

    name: str
    has_sink: bool = True
    is_exactly_once: bool = False


FLOOR: Final = Floor("floor")
FLOORS: Final = (
    Floor("floor-source", has_sink=False),
    FLOOR,
    Floor("floor-exactly-once", is_exactly_once=True),
)


def main() -> None:
    """Measure and print."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # Broker and Spark end with us.
    report = Report(quiet=options.json)
    effort = QUICK if options.quick else FULL
    contenders = (OURS,) if options.without_peer else (OURS, PEER)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch, ExitStack() as stack:
        bench = stack.enter_context(Bench(Path(scratch), contenders, effort))
        for name, row in bench.rows():
            if wanted(name, options.rows):
                row(name, report)
    for verdict in verdicts(report.results, BARS):
        report.say(verdict)
    print(json.dumps(report.results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--json", action="store_true", help="only the last line, for programs")
    parser.add_argument("--rows", metavar="PATTERN", help="only rows whose name fits")
    parser.add_argument("--without-peer", action="store_true", help="ours alone: no jars needed")
    return parser.parse_args()


class Bench:
    """A broker, a session, and the rows that run on them. A context manager."""

    def __init__(self, scratch: Path, contenders: tuple[str, ...], effort: Effort) -> None:
        self._scratch = scratch
        self._contenders = contenders
        self._effort = effort
        self._stack = ExitStack()
        self._topics = 0
        self._is_warm = False

    def __enter__(self) -> Bench:
        with self._stack:
            self._begin()
            self._stack = self._stack.pop_all()
        return self

    def _begin(self) -> None:
        launcher = MillstreamLauncher({**SETTINGS, "auto.create.topics.enable": "false"})
        self._broker = self._stack.enter_context(BrokerProcess(launcher, self._scratch / "broker"))
        self._servers = f"{HOST}:{self._broker.port}"
        with self._broker.client():
            pass  # It answers.
        conf: dict[str, object] = {
            "spark.sql.shuffle.partitions": PARTITIONS,
            "spark.sql.warehouse.dir": self._scratch / "warehouse",
            "spark.driver.memory": "2g",
            "spark.millstream.directPermissions": True,
        }
        if PEER in self._contenders:
            conf["spark.jars"] = ",".join(map(str, _jars()))
        self._spark = session("benchmark", "local[2]", **conf)
        self._stack.callback(self._spark.stop)
        jvm: Any = self._spark._jvm
        self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self) -> list[tuple[str, Callable[[str, Report], None]]]:
        """What can be measured."""
        found: list[tuple[str, Callable[[str, Report], None]]] = []
        for label, size in SIZES.items():
            found.append((f"read-{label}", partial(self._read, size)))
            found.append((f"write-{label}", partial(self._write, size)))
        found += [(each.name, partial(self._floor, each)) for each in FLOORS]
        return found

    def _read(self, size: int, name: str, report: Report) -> None:
        topic = self._filled_topic(size)

        def job(contender: str) -> None:
            frame = self._source(self._spark.read, contender, topic).load()
            frame.write.format("noop").mode("overwrite").save()

        self._race(name, job, report)
        self._broker.delete_topic(topic)

    def _write(self, size: int, name: str, report: Report) -> None:
        frame = self._cached_rows(size)

        def job(contender: str) -> None:
            topic = self._new_topic(PARTITIONS)
            writer = frame.write.format(contender).mode("append").option("topic", topic)
            writer.option("kafka.bootstrap.servers", self._servers).save()
            written = self._broker.end_offsets(topic, PARTITIONS)
            assert written == self._effort.rows, f"{contender} wrote {written} rows"
            self._broker.delete_topic(topic)

        self._race(name, job, report)
        frame.unpersist()

    def _race(self, name: str, job: Callable[[str], None], report: Report) -> None:
        """The job of each contender, interleaved, and the medians."""
        seconds: dict[str, list[float]] = {each: [] for each in self._contenders}
        cpu: dict[str, list[float]] = {each: [] for each in self._contenders}
        for turn in range(1 + self._effort.rounds):
            for contender in self._contenders:
                cpu_before, before = cpu_seconds(self._jvm), time.perf_counter()
                job(contender)
                if turn:  # The first is for warming up.
                    seconds[contender].append(time.perf_counter() - before)
                    cpu[contender].append(cpu_seconds(self._jvm) - cpu_before)
        rows = self._effort.rows
        rates = {each: rows / statistics.median(found) for each, found in seconds.items()}
        costs = {each: statistics.median(found) / rows * 1e6 for each, found in cpu.items()}
        report.add(name, "rows_per_second", rates[OURS], rates.get(PEER))
        report.add(name, "cpu_us", costs[OURS], costs.get(PEER))
        for each in self._contenders:
            report.say(
                f"{name:14} {each:11} {rates[each]:>10,.0f} rows/s {costs[each]:6.2f} us/row"
            )

    def _floor(self, floor: Floor, name: str, report: Report) -> None:
        """Micro-batches of each contender, interleaved, and the medians of their stages."""
        self._warm_up_once()
        taken: dict[str, list[dict[str, int]]] = {each: [] for each in self._contenders}
        for turn in range(1 + self._effort.rounds):
            for contender in self._contenders:
                durations = self._micro_batches(contender, floor)
                if turn:  # The first is for warming up.
                    taken[contender] += durations
        found = {each: _median(durations, "triggerExecution") for each, durations in taken.items()}
        report.add("", f"{name}_ms", found[OURS], found.get(PEER))
        for each, ms in found.items():
            stages = ", ".join(f"{stage} {_median(taken[each], stage):.0f}" for stage in STAGES)
            report.say(f"{name:14} {each:11} {ms:6.1f} ms a micro-batch: {stages}")

    def _warm_up_once(self) -> None:
        """Micro-batches that do not count, as many of each: the JVM compiles meanwhile."""
        if self._is_warm:
            return
        self._is_warm = True
        for _ in range(self._effort.warm_up_queries):
            for contender in self._contenders:
                self._micro_batches(contender, FLOOR, **{"kafka.fetch.max.wait.ms": "1"})

    def _micro_batches(self, contender: str, floor: Floor, **options: str) -> list[dict[str, int]]:
        """How long the stages of micro-batches with one record each took, in ms."""
        topic, target = self._new_topic(1), self._new_topic(1)
        source = self._source(self._spark.readStream, contender, topic).options(**options)
        if contender == OURS:
            # Spark counts the time in which an idle source waits for records as the batch's.
            source = source.option("idleWaitMs", "0")
        frame = source.option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop")
        if floor.has_sink:
            writer = frame.select("key", "value").writeStream.format(contender)
            writer = writer.option("kafka.bootstrap.servers", self._servers).option("topic", target)
        if floor.is_exactly_once and contender == OURS:
            writer = writer.option("delivery", "exactly-once")
        checkpoint = str(self._scratch / f"checkpoint-{topic}")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            with Producer(self._servers, linger=0) as producer:
                taken = [_one_batch(query, producer, topic) for _ in range(self._effort.batches)]
        finally:
            query.stop()
        return taken[len(taken) // 2 :]

    def _source(self, reader: Any, contender: str, topic: str) -> Any:
        reader = reader.format(contender).option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", self._servers)

    def _new_topic(self, partitions: int) -> str:
        self._topics += 1
        topic = f"bench-{self._topics}"
        self._broker.create_topic(topic, partitions)
        return topic

    def _filled_topic(self, size: int) -> str:
        import pyarrow as pa

        topic = self._new_topic(PARTITIONS)
        with Producer(self._servers) as producer:
            for start in range(0, self._effort.rows, _CHUNK_ROWS):
                rows = range(start, min(start + _CHUNK_ROWS, self._effort.rows))
                keys = pa.array([b"%016d" % row for row in rows], pa.binary())
                values = pa.array(
                    [(b"%020d" % row) * (size // 20 + 1) for row in rows], pa.binary()
                )
                table = pa.table({"key": keys, "value": pa.compute.binary_slice(values, 0, size)})
                producer.send_batch(topic, table)
            producer.flush()
        assert self._broker.end_offsets(topic, PARTITIONS) == self._effort.rows
        return topic

    def _cached_rows(self, size: int) -> Any:
        from pyspark.sql import functions as F

        key = F.lpad(F.col("id").cast("string"), 16, "0").cast("binary")
        value = F.rpad(F.col("id").cast("string"), size, "x").cast("binary")
        frame = self._spark.range(self._effort.rows, numPartitions=PARTITIONS)
        cached = frame.select(key.alias("key"), value.alias("value")).persist()
        cached.count()
        return cached


def _one_batch(query: Any, producer: Producer, topic: str) -> dict[str, int]:
    """Send one record and wait until Spark tells of its batch: how long its stages took, in ms."""
    last = query.lastProgress
    seen = last["batchId"] if last and last["numInputRows"] else -1
    producer.send(topic, b"one")
    producer.flush()
    deadline = time.perf_counter() + _BATCH_SECONDS_MAX
    while time.perf_counter() < deadline:
        # Not recentProgress: making JSON of a hundred reports each time would be what is measured.
        last = query.lastProgress
        if last and last["batchId"] > seen and last["numInputRows"]:
            durations: dict[str, int] = last["durationMs"]
            return durations
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.02)
    sys.exit("no micro-batch came to an end in time")


def _median(durations: list[dict[str, int]], stage: str) -> float:
    return statistics.median(each.get(stage, 0) for each in durations)


def cpu_seconds(root: int) -> float:
    """CPU time of a process and all below it, those that have ended too."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    pending, total = [root], 0
    while pending:
        pid = pending.pop()
        total += ticks.get(pid, 0)
        pending += children.get(pid, [])
    return total / _TICKS


def _jars() -> list[Path]:
    try:
        return connector_jars()
    except pytest.skip.Exception as reason:
        sys.exit(f"no connector to compare with: {reason}. --without-peer runs ours alone.")


if __name__ == "__main__":
    main()
