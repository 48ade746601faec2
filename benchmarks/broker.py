"""Is our broker faster than Apache Kafka? Produce, fetch, latency, start, memory, idle cost.

    python -m benchmarks.broker [--quick | --full] [--json] [--rows PATTERN] [--without-kafka]
    python -m benchmarks.broker --before ../checkout-of-another-revision

One load generator in C drives `millstream server start` and Apache Kafka from Maven (1 GB of heap,
the flags and settings it comes with), interleaved on the same machine and disk, after a warm-up of
both. Who is not measured stands still meanwhile. Of all rounds the median counts. A ratio says how
many times better ours is: more requests per second, less CPU time, less waiting, less memory. CPU
time is that of all threads of the broker. At the end stands which of the bars of `broker_bars`
hold.

Produce: Produce v13 with acks=all to a topic of 4 partitions; `c4-w5` is 4 connections with 5
requests in flight each. 100 B is one record, larger batches hold records of 1 KiB. Fetch: Fetch v18
in a session, one partition per connection, from the page cache. `--rows 'produce-*-c4*,follow'`
takes names by pattern; `--list` shows them. `--floor` adds to each round the load generator against
a C program that answers at once: what it could do at most, at that moment. The row `floor` is the
same once, before all others, which on a busy machine proves little. `clients` is the CPU time of
the generator itself per request, and how much of a core that is. `steal` is the share of the
machine that its host took away; a round that lost more than a tenth is repeated, twice at most.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks import broker_bars, broker_floor, broker_life, quiet
from benchmarks.broker_processes import (
    BEFORE,
    KAFKA,
    OURS,
    BrokerProcess,
    add_peer_arguments,
    contenders,
)
from benchmarks.broker_rows import Effort, FetchRow, FollowRow, ProduceRow, median, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.broker_bars import Pair
    from benchmarks.broker_processes import Launcher
    from benchmarks.broker_rows import Figures, Row

T = TypeVar("T")
LIFE_ROWS = ("start", "embedded-start", "memory-and-idle")
_LESS_IS_BETTER = ("_ns", "_us", "_us_per_mb", "_ms", "_mb", "_us_per_second")
_CONDITIONS = ("client_us", "client_busy", "steal", "repeats")
"""What says how far the other figures can be trusted."""
_RATIOS = (
    "requests_per_second",
    "transactions_per_second",
    "stable_ms",
    "cpu_us",
    "cpu_ms",
    "p50_us",
    "p99_us",
    "arrival_p50_us",
)
"""The figures of a row whose ratio is shown."""
_WARM_UP: tuple[Row, ...] = (
    ProduceRow("100B", 1, 1),
    ProduceRow("100B", 16, 5),
    ProduceRow("16KiB", 4, 5),
    ProduceRow("1MiB", 4, 1),
    FetchRow("1KiB", 1),
    FetchRow("64KiB", 4),
    FollowRow(),
)


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # The brokers end with us.
    if options.list:
        names = [row.name for row in rows(full=True)]
        print("\n".join([*names, *LIFE_ROWS, broker_floor.NAME]))
        return
    report = Report(quiet=options.json)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        launchers = contenders(options, Path(scratch))
        measure_rows(launchers, options, report)
        measure_life(launchers, options, report)
    bars = broker_bars.BARS_BEFORE if options.before else broker_bars.BARS
    for verdict in broker_bars.verdicts(report.results, bars):
        report.say(verdict)
    print(json.dumps(report.results))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.broker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="one short round of each row")
    size.add_argument("--full", action="store_true", help="every size, connections and window")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="some rows, by name")
    parser.add_argument("--list", action="store_true", help="the names of all rows")
    add_peer_arguments(parser)
    parser.add_argument(
        "--floor", action="store_true", help="in each round, what the load generator could do"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.4
    return options


def wanted(name: str, patterns: str) -> bool:
    """Whether a row was asked for."""
    return not patterns or any(fnmatch.fnmatch(name, f"*{p}*") for p in patterns.split(","))


class Report:
    """Prints rows as they come and keeps them for the last line."""

    def __init__(self, *, quiet: bool) -> None:
        self.results: dict[str, Pair] = {}
        self._quiet = quiet

    def say(self, text: str) -> None:
        """For people."""
        if not self._quiet:
            print(text, flush=True)

    def add(self, name: str, key: str, ours: float | None, peer: float | None) -> None:
        """One figure of both."""
        ratio = None
        if ours and peer:
            ratio = round(peer / ours if key.endswith(_LESS_IS_BETTER) else ours / peer, 2)
        self.results[f"{name}_{key}" if name else key] = {
            "ours": _rounded(ours),
            "peer": _rounded(peer),
            "ratio": ratio,
        }

    def row(self, name: str, found: dict[str, Figures]) -> None:
        """All figures of a row of load."""
        ours, peer = found[OURS], peer_of(found)
        for key in ours:
            if key not in _CONDITIONS:
                self.add(name, key, ours[key], peer[key] if peer else None)
        for who, figures in found.items():
            self.say(f"{name:22} {who:11} {_line(figures)}")
        if peer:
            parts = [
                f"{key} {self.results[f'{name}_{key}']['ratio']:.2f}x"
                for key in _RATIOS
                if key in ours
            ]
            self.say(f"{name:22} {'ratio':11} {', '.join(parts)}")

    def figure(self, key: str, found: dict[str, float]) -> None:
        """A figure without a load."""
        ours, peer = found[OURS], peer_of(found)
        self.add("", key, ours, peer)
        beside = "" if peer is None else f"   peer {peer:10.1f}"
        self.say(f"{key:42} millstream {ours:10.1f}{beside}")


def peer_of(found: dict[str, T]) -> T | None:
    """What was found of Apache Kafka, or of another revision of ours."""
    return found.get(KAFKA, found.get(BEFORE))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3 if value < 10 else 1)


def _line(figures: Figures) -> str:
    texts = {
        "requests_per_second": "{:9.0f} req/s",
        "transactions_per_second": "{:9.0f} transactions/s",
        "mb_per_second": "{:7.1f} MB/s",
        "stable_ms": "stable after {:8.1f} ms",
        "cpu_us": "{:8.2f} us CPU",
        "cpu_ms": "{:8.1f} ms CPU",
        "cpu_us_per_mb": "{:8.0f} us/MB",
        "p50_us": "p50 {:7.1f} us",
        "p99_us": "p99 {:7.1f} us",
        "arrival_p50_us": "arrival p50 {:7.1f} us",
        "arrival_p99_us": "p99 {:7.1f} us",
        "client_us": "clients {:6.1f} us",
        "client_busy": "{:.0%} of a core",
        "steal": "steal {:.0%}",
        "repeats": "{:.0f} repeated",
    }
    return "  ".join(text.format(figures[key]) for key, text in texts.items() if key in figures)


def measure_rows(launchers: list[Launcher], options: argparse.Namespace, report: Report) -> None:
    """Every row of load that is wanted, the contenders interleaved."""
    chosen = [
        r for r in rows(full=options.full or bool(options.rows)) if wanted(r.name, options.rows)
    ]
    if wanted(broker_floor.NAME, options.rows):
        for load in broker_floor.LOADS:
            report.say(
                f"{broker_floor.NAME}: {load.name:22} {_line(load.measure(options.seconds))}"
            )
    if not chosen:
        return
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-")))
        brokers = [
            stack.enter_context(BrokerProcess(each, scratch / each.name)) for each in launchers
        ]
        report.say(f"load {os.getloadavg()[0]:.1f} before; warming up")
        warm_up(brokers, 1.5 if options.quick else 4.0)
        before = quiet.Times.now()
        for row in chosen:
            report.row(row.name, compare(row, brokers, options))
        steal = quiet.Times.now().steal_since(before)
        report.say(f"load {os.getloadavg()[0]:.1f} after; steal {steal:.0%} over all rows")


def warm_up(brokers: list[BrokerProcess], seconds: float) -> None:
    """A JVM is slow until it has compiled what it runs; Python needs little more than a start."""
    for broker in brokers:
        needed = seconds if broker.name == KAFKA else 0.2
        for row in _WARM_UP:
            row.round(broker, Effort(needed, 0.1, 100))


def compare(
    row: Row, brokers: list[BrokerProcess], options: argparse.Namespace
) -> dict[str, Figures]:
    """The median of each contender's rounds; they take turns in who begins."""
    effort = Effort(options.seconds, options.seconds / 3, 200 if options.quick else 500)
    taken: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    floors = broker_floor.floors_of(row) if options.floor else {}
    for number in range(options.rounds):
        for name, floor in floors.items():
            with alone(brokers):
                taken.setdefault(name, []).append(floor.measure(options.seconds))
        for broker in brokers if number % 2 == 0 else reversed(brokers):
            with alone(brokers, broker):
                taken[broker.name].append(round_in_quiet(row, broker, effort))
    found = {name: median(each) for name, each in taken.items()}
    for broker in brokers:
        found[broker.name]["repeats"] = sum(each["repeats"] for each in taken[broker.name])
    return found


@contextmanager
def alone(brokers: list[BrokerProcess], measured: BrokerProcess | None = None) -> Iterator[None]:
    """Whoever else there is stands still."""
    with ExitStack() as stack:
        for broker in brokers:
            if broker is not measured:
                stack.enter_context(broker.standing_still())
        yield


def round_in_quiet(row: Row, broker: BrokerProcess, effort: Effort) -> Figures:
    """A round that the host of a virtual machine disturbed as little as can be had."""
    measured = quiet.in_quiet(lambda: row.round(broker, effort))
    return {**measured.found, "steal": measured.steal, "repeats": measured.repeats}


def measure_life(launchers: list[Launcher], options: argparse.Namespace, report: Report) -> None:
    """Start, memory and idle cost."""
    rounds = 1 if options.quick else 3
    if wanted("start", options.rows):
        broker_life.start_once_untimed()
        found = {
            each.name: statistics.median(broker_life.start_ms(each) for _ in range(rounds))
            for each in launchers
        }
        report.figure("start_ms", found)
    if wanted("embedded-start", options.rows):
        taken = [broker_life.embedded_start_ms() for _ in range(rounds + 2)]
        report.figure("embedded-start_ms", {"millstream": statistics.median(taken)})
    if wanted("memory-and-idle", options.rows):
        seconds = broker_life.QUICK_IDLE_SECONDS if options.quick else broker_life.IDLE_SECONDS
        each_of = {e.name: broker_life.memory_and_idle(e, seconds) for e in launchers}
        for key in each_of["millstream"]:
            report.figure(key, {name: figures[key] for name, figures in each_of.items()})


if __name__ == "__main__":
    main()
