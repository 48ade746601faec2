"""Our clients beside confluent-kafka, aiokafka and kafka-python, on the same broker, interleaved.

Rows are jobs: send 100 B or 1 KiB records with keys, the same with a look at every offset, read
them as records, send a table, read to pyarrow, pandas and polars, an acknowledged send in asyncio.
Our pandas frames are backed by Arrow unless asked otherwise; `columns-objects`, which has no bar,
is the same with columns of Python objects on both sides.
Each contender is a process of its own; CPU is that of all its threads, the broker's is not counted.
The last two rows tell how late heartbeats and lingering batches are while Python is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import clients_punctual
from benchmarks.broker import Report, wanted
from benchmarks.broker_bars import BARS_BEFORE, Bar, verdicts
from benchmarks.broker_processes import (
    BEFORE,
    HOST,
    KAFKA,
    OURS,
    SETTINGS,
    BrokerProcess,
    KafkaLauncher,
    Launcher,
    MillstreamLauncher,
    python_of,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from benchmarks.clients_punctual import Found
    from benchmarks.quiet import Measured

PARTITIONS: Final = 4
_WORKER: Final = "from benchmarks.clients_worker import main; main()"
# A client that asks for a deleted topic once more must not bring it back.
_SETTINGS: Final = {**SETTINGS, "auto.create.topics.enable": "false"}


@dataclass(frozen=True, slots=True)
class Row:
    """A job, what it reads or writes, who can do it and how many records are fair to each."""

    name: str
    job: str
    size: int
    count: int
    contenders: tuple[str, ...]
    reads: bool = False


_ALL = ("millstream", "confluent-kafka", "aiokafka", "kafka-python")
_QUICK_ONES = ("millstream", "confluent-kafka")
ROWS: Final = (
    Row("produce-100B", "produce", 100, 400_000, _ALL),
    Row("produce-1KiB", "produce", 1024, 100_000, _ALL),
    Row("produce-told-100B", "produce-told", 100, 200_000, _ALL),
    Row("consume-100B", "consume", 100, 400_000, _ALL, reads=True),
    Row("consume-1KiB", "consume", 1024, 100_000, _ALL, reads=True),
    Row("columns-produce-100B", "columns-produce", 100, 400_000, _QUICK_ONES),
    Row("columns-produce-1KiB", "columns-produce", 1024, 100_000, _QUICK_ONES),
    Row("columns-pyarrow-100B", "columns-pyarrow", 100, 400_000, _QUICK_ONES, reads=True),
    Row("columns-pandas-100B", "columns-pandas", 100, 400_000, _QUICK_ONES, reads=True),
    Row("columns-objects-100B", "columns-objects", 100, 400_000, _QUICK_ONES, reads=True),
    Row("columns-polars-100B", "columns-polars", 100, 400_000, _QUICK_ONES, reads=True),
    Row("async-acked-100B", "acked-latencies", 100, 2_000, ("millstream", "aiokafka")),
)
SLOW: Final = {"aiokafka": 10, "kafka-python": 20}
"""These get a part of the records: a row of theirs would take minutes."""

BARS: Final = (
    Bar("produce-100B_cpu_ns", ratio_min=3),
    Bar("produce-told-100B_cpu_ns", ratio_min=3),
    Bar("consume-100B_cpu_ns", ratio_min=2),
    Bar("columns-produce-100B_cpu_ns", ratio_min=20),
    Bar("columns-py*-100B_cpu_ns", ratio_min=10),
    Bar("columns-pa*-100B_cpu_ns", ratio_min=10),
    Bar("columns-po*-100B_cpu_ns", ratio_min=10),
    Bar("async-acked-100B_p50_us", ratio_min=1),
    Bar("late-*_p99_us", ours_max=5_000),
)


class Worker:
    """A contender's process. A context manager: it always ends."""

    def __init__(self, name: str, bootstrap: str, checkout: Path | None) -> None:
        self.name = name
        python = sys.executable if checkout is None else python_of(checkout)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [python, "-c", _WORKER, OURS if checkout else name, bootstrap],
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, row: Row, topic: str, count: int) -> dict[str, Any]:
        """Have a job done; all records must be there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"job": row.job, "topic": topic, "size": row.size, "count": count}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} ended in {row.name}")
        found: dict[str, Any] = json.loads(answer)
        if found["records"] < count:
            sys.exit(f"{self.name} in {row.name}: {found['records']} of {count} records")
        return found


def figures(found: list[dict[str, Any]]) -> dict[str, float]:
    """The medians of all rounds."""
    if "latencies" in found[0]:
        ordered = sorted(each for one in found for each in one["latencies"])
        return {
            "p50_us": statistics.median(ordered) * 1e6,
            "p99_us": ordered[int(len(ordered) * 0.99)] * 1e6,
            "cpu_us": statistics.median(one["cpu"] / one["records"] for one in found) * 1e6,
        }
    return {
        "messages_per_second": statistics.median(one["records"] / one["wall"] for one in found),
        "cpu_ns": statistics.median(one["cpu"] / one["records"] for one in found) * 1e9,
    }


def measure_row(
    row: Row, broker: BrokerProcess, workers: dict[str, Worker], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """All contenders, interleaved; the first round warms up and does not count."""
    count = row.count // (10 if options.quick else 1)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in row.contenders}
    topic = f"{row.name}-read"
    if row.reads:
        broker.create_topic(topic, PARTITIONS)
        filling = Row(row.name, "produce", row.size, count, row.contenders)
        workers["millstream"].do(filling, topic, count)
    for number in range(options.rounds + 1):
        for name in row.contenders if number % 2 else reversed(row.contenders):
            written = topic if row.reads else f"{row.name}-{name}-{number}"
            if not row.reads:
                broker.create_topic(written, PARTITIONS)
            is_whole = row.reads and name != "kafka-python"  # Which needs a minute for 1 KiB.
            some = count if is_whole else max(100, count // SLOW.get(name, 1))
            found = workers[name].do(row, written, some)
            if number:
                rounds[name].append(found)
            if not row.reads:
                if broker.end_offsets(written, PARTITIONS) != some:
                    sys.exit(f"{name} in {row.name}: not all records are in the log")
                broker.delete_topic(written)
    if row.reads:
        broker.delete_topic(topic)
    return {name: figures(found) for name, found in rounds.items()}


def report_row(report: Report, row: Row, found: dict[str, dict[str, float]]) -> None:
    """Ours against the row's first peer, which has the bar; the others beside."""
    ours = found["millstream"]
    for name, theirs in found.items():
        shown = "  ".join(f"{key} {value:12,.1f}" for key, value in theirs.items())
        report.say(f"{row.name:22} {name:16} {shown}")
    for name in row.contenders[1:]:
        suffix = "" if name == row.contenders[1] else f"@{name}"
        for key, value in ours.items():
            report.add(row.name, key + suffix, value, found[name][key])
    peer = row.contenders[1]
    key = "cpu_ns" if "cpu_ns" in ours else "p50_us"
    report.say(
        f"{row.name:22} {'ratio':16} {key} {report.results[f'{row.name}_{key}']['ratio']}x {peer}"
    )


def report_late(report: Report, name: str, late: Measured[Found]) -> None:
    """A row about lateness, and what it is to be judged by."""
    report.figure(name, {"millstream": late.found.ours.p99_us})
    report.say(f"{'':10} ours {late.found.ours}; who only sleeps {late.found.sleeper}")
    report.say(f"{'':10} steal {late.steal:.1%}, repeated {late.repeats} times")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one short round of each row")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="some rows, by name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--broker", choices=(OURS, KAFKA), default=OURS)
    parser.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help="beside another revision of ours instead, a checkout with its own environment",
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # The broker ends with us.
    report = Report(quiet=options.json)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch, ExitStack() as stack:
        launcher: Launcher = MillstreamLauncher(_SETTINGS)
        if options.broker == KAFKA:
            launcher = KafkaLauncher(Path(scratch), _SETTINGS)
        broker = stack.enter_context(BrokerProcess(launcher, Path(scratch) / "broker"))
        with broker.client():
            bootstrap = f"{HOST}:{broker.port}"
        chosen = [row for row in ROWS if wanted(row.name, options.rows)]
        if options.before:
            chosen = [replace(row, contenders=(OURS, BEFORE)) for row in chosen]
        names = dict.fromkeys(name for row in chosen for name in row.contenders)
        workers = {
            name: stack.enter_context(
                Worker(name, bootstrap, options.before if name == BEFORE else None)
            )
            for name in names
        }
        for row in chosen:
            report_row(report, row, measure_row(row, broker, workers, options))
        for name, late in clients_punctual.measure(options):
            report_late(report, name, late)
    for verdict in verdicts(report.results, BARS_BEFORE if options.before else BARS):
        report.say(verdict)
    print(json.dumps(report.results))


if __name__ == "__main__":
    main()
