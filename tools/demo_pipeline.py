"""The part of `make demo` with Spark in the middle: events in, results out, exactly once.

A shop sends orders, late ones and broken ones among them, to a broker in this process. A pipeline
(`demo_pipeline.yaml`) decodes them, makes dead letters of the broken, and sums them up in windows
of time, into a topic and into files. At the end every order that was sent must be in one place,
once: the exit code tells. A picture of throughput and lag is left in `build/demo`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream import read_topic
from millstream.cli.pipeline_run import spark_session
from millstream.cli.pipeline_view import LiveTable, PlainLines
from millstream.client.retrying import attempt
from millstream.spark.pipelines import load
from millstream.spark.pipelines.runner import StopSwitch, run
from millstream.testing import EmbeddedBroker
from tools.demo_orders import TOPIC, Ledger, OrderGenerator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from millstream.spark.pipelines import Pipeline
    from millstream.spark.pipelines.progress import BatchProgress
    from millstream.spark.pipelines.runner import Watcher
    from millstream.spark.pipelines.supervision import QuerySupervisor

DEFINITION: Final = Path(__file__).with_suffix(".yaml")
DIRECTORY: Final = Path("build/demo")
PARTITIONS: Final = 4
SALES, DEAD = "sales", "orders.dead"
SECONDS_MAX: Final = 150
"""From the start of the queries on. With what comes before, the demo is to end within 3 minutes."""
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many orders are sent in which time, and when to give up waiting for what they become."""

    count: int
    seconds: float
    seconds_max: float = SECONDS_MAX


@dataclass(slots=True)
class Sample:
    """How things stood at a moment."""

    seconds: float
    sent: int
    done: int
    lag: int


@dataclass(slots=True)
class Outcome:
    """What came out."""

    orders: Counter[tuple[int, str]] = field(default_factory=Counter)
    cents: Counter[tuple[int, str]] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Result:
    """What was sent, what came out, and how it went."""

    ledger: Ledger
    topics: Outcome
    files: Outcome
    samples: list[Sample]
    error: Exception | None
    is_overdue: bool = False
    """Whether the run was ended because it took too long."""


class Follower:
    """Watches the run with somebody else's eyes, samples it, and ends it when all is done."""

    def __init__(
        self, shown: Watcher, generator: OrderGenerator, address: str, seconds_max: float
    ) -> None:
        self.stop = StopSwitch()
        self.samples: list[Sample] = []
        self.is_overdue = False
        self._seconds_max = seconds_max
        self._shown = shown
        self._generator = generator
        self._address = address
        self._started = time.perf_counter()
        self._looked = 0.0

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """A batch is done."""
        self._shown.progressed(query, batch)

    def changed(self, query: QuerySupervisor) -> None:
        """A query started, failed or ended."""
        self._shown.changed(query)

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """Once a second: sample, and see whether there is anything left to wait for."""
        self._shown.looked(queries)
        now = time.perf_counter() - self._started
        if now - self._looked < _LOOK_S or self.stop.requests:
            return
        self._looked = now
        sent = self._generator.ledger.sent
        done = min((query.rows for query in queries.values()), default=0)
        self.samples.append(Sample(now, sent, done, max(0, sent - done)))
        has_read_all = not self._generator.is_alive() and done > sent
        if (has_read_all and self._is_complete()) or self._generator.error:
            self.stop.request()
        elif now > self._seconds_max:
            self.is_overdue = True
            self.stop.request()

    def _is_complete(self) -> bool:
        """Everything has come out; whether it is right is looked at later."""
        ledger = self._generator.ledger
        found = outcome_of_topics(self._address)
        return found.orders.total() >= ledger.good and found.dead.total() >= ledger.dead.total()


def outcome_of_topics(address: str) -> Outcome:
    """What is committed in the topics of results."""
    found = Outcome()
    for value in _committed(address, SALES, "value"):
        row = json.loads(value)
        window = _window_of(row["start"], row["country"])
        found.orders[window] += row["orders"]
        found.cents[window] += row["cents"]
    for headers in _committed(address, DEAD, "headers"):
        told = {each["key"]: each["value"] for each in headers}
        message = told[attempt.ERROR_MESSAGE].decode()
        found.dead["is_an_order" if "is_an_order" in message else "is_in_time"] += 1
    return found


def outcome_of_files(spark: SparkSession, directory: Path) -> Outcome:
    """What is in the files."""
    found = Outcome()
    schema = "start TIMESTAMP, country STRING, orders BIGINT, cents BIGINT"
    for row in spark.read.schema(schema).parquet(str(directory)).collect():
        window = int(row["start"].timestamp() * 1000), row["country"]
        found.orders[window] += row["orders"]
        found.cents[window] += row["cents"]
    return found


def _committed(address: str, topic: str, column: str) -> list[Any]:
    read = read_topic(address, topic, columns=[column], isolation_level="read_committed")
    found: list[Any] = read.to_arrow()[column].to_pylist()
    return found


def _window_of(start: str, country: str) -> tuple[int, str]:
    from datetime import datetime

    return int(datetime.fromisoformat(start).timestamp() * 1000), country


def differences(ledger: Ledger, topics: Outcome, files: Outcome) -> list[str]:
    """Whatever is not as the ledger has it."""
    pairs = (
        ("orders in the topic", ledger.orders, topics.orders),
        ("cents in the topic", ledger.cents, topics.cents),
        ("orders in the files", ledger.orders, files.orders),
        ("cents in the files", ledger.cents, files.cents),
        ("dead letters", ledger.dead, topics.dead),
    )
    return [
        f"{what}: {wanted.total():,} expected, {found.total():,} found"
        for what, wanted, found in pairs
        if wanted != found
    ]


@contextmanager
def _shown(title: str) -> Iterator[Watcher]:
    if sys.stderr.isatty():
        with LiveTable(title) as table:
            yield table
    else:
        yield PlainLines()


def show_pipeline(pace: Pace, directory: Path) -> list[str]:
    """Start a broker and Spark, and run everything; what is wrong at the end, in words."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with EmbeddedBroker() as broker:
        pipeline = prepare(broker, directory)
        address = broker.bootstrap_servers
        print(f"\nA pipeline with Spark, {DEFINITION.name}: orders into {address}\n", flush=True)
        settings = {"spark.sql.warehouse.dir": str(directory.resolve() / "warehouse")}
        with spark_session(pipeline, "local[2]", settings) as spark, _shown("demo") as shown:
            result = follow(pipeline, spark, address, shown, pace, directory)
    if result.error is not None:
        return [f"the orders could not be sent: {result.error}"]
    _tell(result)
    _draw(result.samples, directory / "demo.png")
    wrong = differences(result.ledger, result.topics, result.files)
    if result.is_overdue:
        wrong.insert(0, f"the pipeline was ended: it was not done after {pace.seconds_max:g} s")
    return wrong


def prepare(broker: EmbeddedBroker, directory: Path) -> Pipeline:
    """The topics, and the pipeline between them."""
    for topic, partitions in ((TOPIC, PARTITIONS), (DEAD, 1), (SALES, 2)):
        # The shop's day is long over: by their timestamps, its records would be too old to keep.
        broker.create_topic(topic, partitions, {"retention.ms": -1})
    environment = {
        "DEMO_BROKER": broker.bootstrap_servers,
        "DEMO_DIRECTORY": str(directory.resolve()),
    }
    return load(DEFINITION, {**os.environ, **environment})


def follow(
    pipeline: Pipeline,
    spark: SparkSession,
    address: str,
    shown: Watcher,
    pace: Pace,
    directory: Path,
) -> Result:
    """Send the orders, run the pipeline until they are through, and look at what came out."""
    generator = OrderGenerator(address, pace.count, pace.seconds)
    generator.start()
    follower = Follower(shown, generator, address, pace.seconds_max)
    run(pipeline, spark, watcher=follower, stop=follower.stop)
    generator.join()
    return Result(
        generator.ledger,
        outcome_of_topics(address),
        outcome_of_files(spark, directory / "sales"),
        follower.samples,
        generator.error,
        follower.is_overdue,
    )


def _tell(result: Result) -> None:
    ledger, found = result.ledger, result.topics
    took = result.samples[-1].seconds if result.samples else 0.0
    print(f"\n  {ledger.sent:>8,} orders sent, {ledger.late:,} of them late, in {took:.0f} s")
    print(f"  {found.orders.total():>8,} in {len(found.orders)} windows of the topic {SALES!r}")
    for cause, letters in sorted(found.dead.items()):
        print(f"  {letters:>8,} dead letters that do not fulfil {cause!r}")


def _draw(samples: Sequence[Sample], path: Path) -> None:
    """Throughput and lag as a picture."""
    try:
        from tools.demo_plot import draw
    except ImportError:
        print("\nNo picture: matplotlib is not installed.")
        return
    draw([(each.seconds, each.sent, each.done, each.lag) for each in samples], path)
    print(f"\nThroughput and lag: {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Show it; 0 if every order was accounted for once."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="with few orders")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for files and state")
    options = parser.parse_args(arguments)
    pace = Pace(4_000, 4.0) if options.quick else Pace(100_000, 40.0)
    wrong = show_pipeline(pace, options.directory)
    if wrong:
        print("\nNot everything is accounted for:", *wrong, sep="\n  ")
        return 1
    print("\nEvery order is accounted for exactly once: in a window, in a file, or a dead letter.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
