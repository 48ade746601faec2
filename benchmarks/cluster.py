"""A cluster of three nodes beside Apache Kafka: what metadata costs, and how soon it fails over.

    python -m benchmarks.cluster [--quick] [--json] [--rows PATTERN] [--without-kafka]

Each contender has three combined nodes, processes of their own, with default settings. A round is
one life of such a cluster; the contenders take turns. Rows:

- `start`: from the launch of three formatted nodes to the first topic, in ms.
- `idle`: CPU time of a node when nothing happens, in µs per second (10,000 are 1 %).
- `kill`, `pause`: the active controller is killed or stopped; the time until one of the other two
  creates a topic, asked on their own listeners, where no broker's channel to the one that stands
  still is in the way. The 99th percentile is that of all.
- `topics`: time for 10,000 topics, 100 in a request.
- `new-broker`: from the launch of a fourth node to its answer that has all those topics.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster_processes import ClusterProcesses, Kafka, Millstream
from benchmarks.load import cpu_seconds
from millstream.protocol.messages import (
    CreateTopicsRequest,
    MetadataRequest,
    create_topics,
    metadata,
)
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.cluster_processes import NodeProcess, Software

ROWS = ("start", "idle", "kill", "pause", "topics", "new-broker")
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 12.0, 3.0
IDLE_SECONDS, QUICK_IDLE_SECONDS = 10.0, 2.0
FAILOVERS, QUICK_FAILOVERS = 5, 2
TOPICS, QUICK_TOPICS = 10_000, 500
TOPICS_AT_ONCE = 100
_CREATE_VERSION, _METADATA_VERSION = 7, 12
_TIMEOUT_MS = 30_000

_numbers = itertools.count(1)


class Life:
    """One life of a cluster, and what was found in it."""

    def __init__(self, cluster: ClusterProcesses, options: argparse.Namespace) -> None:
        self.cluster = cluster
        self._options = options
        self.found: dict[str, list[float]] = {}

    def measure(self) -> None:
        """All rows that are wanted, in their order."""
        started = time.perf_counter()
        self.cluster.launch()
        first = self.cluster.nodes[1]
        self.cluster.until(lambda: self._is_created(first))
        self._note("start", "ms", (time.perf_counter() - started) * 1000)
        self.cluster.until_whole()
        for row, measure in self._rows():
            if self._options.rows in row:
                measure()

    def _rows(self) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "idle", self._idle
        yield "kill", lambda: self._fail_over("kill", signal.SIGKILL)
        yield "pause", lambda: self._fail_over("pause", signal.SIGSTOP)
        yield "topics", self._create_topics
        yield "new-broker", self._add_broker

    def _note(self, row: str, unit: str, value: float) -> None:
        self.found.setdefault(f"{row}_{unit}", []).append(value)

    def _idle(self) -> None:
        seconds = QUICK_IDLE_SECONDS if self._options.quick else IDLE_SECONDS
        time.sleep(QUICK_SETTLE_SECONDS if self._options.quick else SETTLE_SECONDS)
        pids = [each.pid for each in self.cluster.nodes.values()]
        before = [cpu_seconds(each) for each in pids]
        time.sleep(seconds)
        for pid, used in zip(pids, before, strict=True):
            self._note("idle", "cpu_us_per_second", (cpu_seconds(pid) - used) / seconds * 1e6)

    def _fail_over(self, row: str, number: signal.Signals) -> None:
        for _ in range(QUICK_FAILOVERS if self._options.quick else FAILOVERS):
            leader = self.cluster.leader()
            self._note(row, "ms", self._until_decided_without(leader, number))
            if number is signal.SIGSTOP:
                leader.send(signal.SIGCONT)
            else:
                leader.kill()
                self.cluster.launch(leader)
            self.cluster.until_whole()

    def _until_decided_without(self, leader: NodeProcess, number: signal.Signals) -> float:
        names = next_names(1)
        with ExitStack() as clients:
            others = [
                clients.enter_context(Client(each)) for each in self.cluster.controllers(leader)
            ]
            began = time.perf_counter()
            leader.send(number)
            self.cluster.until(lambda: any(create(each, names) for each in others))
            return (time.perf_counter() - began) * 1000

    def _create_topics(self) -> None:
        count = QUICK_TOPICS if self._options.quick else TOPICS
        with self.cluster.client(self.cluster.nodes[1]) as client:
            began = time.perf_counter()
            for _ in range(count // TOPICS_AT_ONCE):
                create_at_last(client, next_names(TOPICS_AT_ONCE))
            self._note("topics", f"{count}_s", time.perf_counter() - began)

    def _add_broker(self) -> None:
        known = topics_of(self.cluster, self.cluster.nodes[1])
        broker = self.cluster.add_broker()
        began = time.perf_counter()
        self.cluster.launch(broker)
        self.cluster.until(lambda: topics_of(self.cluster, broker) >= known)
        self._note("new-broker", "ms", (time.perf_counter() - began) * 1000)

    def _is_created(self, node: NodeProcess) -> bool:
        with self.cluster.client(node) as client:
            return create(client, next_names(1))


def next_names(count: int) -> list[str]:
    """Names that no topic has."""
    return [f"topic-{next(_numbers)}" for _ in range(count)]


def create(client: Client, names: list[str]) -> bool:
    """Create topics of one partition; whether that worked."""
    wanted = [
        create_topics.CreatableTopic(name=each, num_partitions=1, replication_factor=1)
        for each in names
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=_TIMEOUT_MS)
    answer = client.ask(request, _CREATE_VERSION, create_topics.CreateTopicsResponse)
    return not any(each.error_code for each in answer.topics)


def create_at_last(client: Client, names: list[str]) -> None:
    """Create topics, as often as it takes."""
    deadline = time.perf_counter() + _TIMEOUT_MS / 1000
    while not create(client, names):
        if time.perf_counter() > deadline:
            sys.exit("topics are not created")
        time.sleep(0.005)


def topics_of(cluster: ClusterProcesses, node: NodeProcess) -> int:
    """How many topics a broker knows of."""
    with cluster.client(node) as client:
        answer = client.ask(
            MetadataRequest(topics=None), _METADATA_VERSION, metadata.MetadataResponse
        )
    return len(answer.topics)


def summary(found: list[float]) -> dict[str, float]:
    """Of all lives: the median, and the value that 99 of 100 are not above."""
    ordered = sorted(found)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    return {"median": statistics.median(ordered), "p99": p99, "count": len(ordered)}


def main() -> None:
    """Run the rounds, print figures and, last, all of them as JSON."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # The nodes end with us.
    results: dict[str, dict[str, list[float]]] = {}

    def say(text: str) -> None:
        if not options.json:
            print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        contenders: list[Software] = [Millstream()]
        if not options.without_kafka:
            contenders.append(Kafka(Path(scratch)))
        say(f"load {os.getloadavg()[0]:.1f} before")
        for number in range(options.rounds):
            for software in contenders:
                directory = Path(scratch, f"{software.name}-{number}")
                with ClusterProcesses(software, directory) as cluster:
                    life = Life(cluster, options)
                    life.measure()
                say(f"{software.name}, life {number + 1}: {life.found}")
                for row, values in life.found.items():
                    results.setdefault(row, {}).setdefault(software.name, []).extend(values)
        say(f"load {os.getloadavg()[0]:.1f} after")
    report = {
        row: {name: summary(values) for name, values in by_name.items()}
        for row, by_name in results.items()
    }
    for row, by_name in report.items():
        shown = ", ".join(
            f"{name} {each['median']:,.0f} (p99 {each['p99']:,.0f}, {each['count']} times)"
            for name, each in by_name.items()
        )
        say(f"{row}: {shown}")
    print(json.dumps(report))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one life, few of everything")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--rows", default="", metavar="PATTERN", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--without-kafka", action="store_true", help="ours alone")
    parser.add_argument("--rounds", type=int, default=2, help="lives of each contender")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


if __name__ == "__main__":
    main()
