"""Are our coordinators faster than Apache Kafka's? Joining a group, offset commits, transactions.

    python -m benchmarks.coordinator [--quick] [--json] [--rows PATTERN] [--without-kafka]

`millstream server start` and Apache Kafka from Maven interleaved on the same machine and disk, as
in `benchmarks.broker`: after a warm-up of both, with the settings they come with but for
`SETTINGS`. Of all rounds the median counts. A ratio says how many times better ours is. CPU time is
that of all threads of the broker. At the end stands which bars hold.

`join-classic` and `join-consumer`: 500 members, a connection each, enter one group at once. The
time is from the first request until every member is in the same generation or epoch and has its
assignment. `commit-c16-w5`: 16 connections with 5 OffsetCommit v10 of one partition in flight each.
`transaction-p16`: 16 producers, each with one transaction after another: Produce v13 of one record
of 100 bytes, EndTxn v5. Every answer is checked, and afterwards the broker's state.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import broker_bars, broker_processes
from benchmarks.broker import Report, compare, wanted
from benchmarks.broker_bars import Bar
from benchmarks.broker_processes import KAFKA, BrokerProcess, add_peer_arguments, contenders
from benchmarks.broker_rows import Effort, reuse_pages
from benchmarks.coordinator_groups import JoinClassicRow, JoinConsumerRow
from benchmarks.coordinator_scripts import CommitRow, TransactionRow

if TYPE_CHECKING:
    from benchmarks.broker_rows import Row

MEMBERS = 500
_FRESH_BYTES = 1 << 30
SETTINGS = {**broker_processes.SETTINGS, "group.initial.rebalance.delay.ms": "0"}
"""What differs from the defaults, for both: a new group does not wait for more members."""
ROWS: tuple[Row, ...] = (
    JoinClassicRow(MEMBERS),
    JoinConsumerRow(MEMBERS),
    CommitRow(16, 5),
    TransactionRow(1),
    TransactionRow(16),
)
BARS = (
    Bar("join-*_stable_ms", ratio_min=1),
    Bar("commit-*_requests_per_second", ratio_min=1),
    Bar("transaction-*_transactions_per_second", ratio_min=1),
)
WARM_UP_ROUNDS = 3
"""Of each row that is asked for; a JVM needs that many, and more would hardly change it."""


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # The brokers end with us.
    if options.list:
        print("\n".join(row.name for row in ROWS))
        return
    report = Report(quiet=options.json)
    measure([row for row in ROWS if wanted(row.name, options.rows)], options, report)
    bars = broker_bars.BARS_BEFORE if options.before else BARS
    for verdict in broker_bars.verdicts(report.results, bars):
        report.say(verdict)
    print(json.dumps(report.results))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coordinator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one short round of each row")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="some rows, by name")
    parser.add_argument("--list", action="store_true", help="the names of all rows")
    add_peer_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    parser.set_defaults(floor=False)  # `compare` can measure one; here it would say nothing new.
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.4
    return options


def measure(rows: list[Row], options: argparse.Namespace, report: Report) -> None:
    """Every row, the contenders interleaved."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-")))
        launchers = contenders(options, scratch, SETTINGS)
        brokers = [
            stack.enter_context(BrokerProcess(each, scratch / each.name)) for each in launchers
        ]
        report.say(f"load {os.getloadavg()[0]:.1f} before; warming up")
        reuse_pages(_FRESH_BYTES)
        for broker in brokers:
            warm_up(broker, rows, 0.5 if options.quick else 2.0)
        for row in rows:
            report.row(row.name, compare(row, brokers, options))
        report.say(f"load {os.getloadavg()[0]:.1f} after")


def warm_up(broker: BrokerProcess, rows: list[Row], seconds: float) -> None:
    """A JVM is slow until it has compiled what it runs; Python needs little more than a start."""
    is_java = broker.name == KAFKA
    for row in rows:
        for _ in range(WARM_UP_ROUNDS if is_java else 1):
            row.round(broker, Effort(seconds if is_java else 0.2, 0.1, 0))


if __name__ == "__main__":
    main()
