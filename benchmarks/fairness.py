"""Do others wait while some connections ask for much? A small producer, alone and beside a crowd.

    python -m benchmarks.fairness [--quick] [--json] [--rows PATTERN] [--without-kafka]

One producer sends a batch of 100 bytes with acks=all after another to `millstream server start` and
to Apache Kafka from Maven, interleaved, as in `benchmarks.broker`. `alone` nobody else is there.
`beside-api-versions` and `beside-produce`: twenty connections have a thousand requests in flight
each, small ones of the full path (ApiVersions) and of the fast path (Produce of 100 bytes to
another topic). `beside-metadata`: thirty connections ask for all topics, one request after another,
and there are 2,000 topics. The figures are the producer's: the median and the 99th percentile of
the time from a request to its answer. At the end stands which bars hold: beside a crowd the 99th
percentile is ten times that of `alone` at most, and not worse than Apache Kafka's.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import broker_bars
from benchmarks.broker import Report, compare, wanted
from benchmarks.broker_bars import Bar
from benchmarks.broker_processes import (
    HOST,
    KAFKA,
    BrokerProcess,
    add_peer_arguments,
    contenders,
)
from benchmarks.broker_rows import Effort, Topic, build_batch, produce_frame
from benchmarks.load import compiled
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    MetadataRequest,
    create_topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.broker_bars import Pair
    from benchmarks.broker_rows import Figures

PIPELINING, WINDOW = 20, 1000
ASKING = 30
TOPICS, QUICK_TOPICS = 2000, 200
TOPICS_PER_REQUEST = 200
SMALL_BYTES = 100
WARM_UP_ROUNDS = 3
ALONE_TIMES_MAX = 10
_LONG = 600
BARS = (Bar("beside-*_p99_us", ratio_min=1),)


@dataclass(frozen=True, slots=True)
class FairnessRow:
    """A small producer, beside a crowd that sends one request again and again."""

    name: str
    connections: int = 0
    window: int = 0
    frame: Callable[[Topic], bytes] | None = None
    """What the crowd sends; there is a topic for it."""

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        batch = build_batch(SMALL_BYTES)
        with Topic(broker, batch, 1) as topic, Topic(broker, batch, 1) as other:
            if self.frame is None:
                return _waiting(topic, effort)
            with self._crowd(broker, self.frame(other), effort):
                return _waiting(topic, effort)

    @contextmanager
    def _crowd(self, broker: BrokerProcess, frame: bytes, effort: Effort) -> Iterator[None]:
        answer_bytes = _answer_bytes(broker, frame)
        with tempfile.NamedTemporaryFile(prefix="millstream-frames-") as file:
            file.write(frame)
            file.flush()
            load = (broker.port, file.name, answer_bytes, self.connections, self.window, _LONG)
            with subprocess.Popen([compiled("blast"), *map(str, load)]) as crowd:
                try:
                    yield
                    if crowd.poll() is not None:
                        sys.exit(f"{broker.name}: the crowd of {self.name} has left")
                finally:
                    crowd.kill()


def _waiting(topic: Topic, effort: Effort) -> Figures:
    """How long the producer waits; the first answers are not counted."""
    topic.produce(1, 1, effort.warm_seconds)
    report = topic.produce(1, 1, effort.seconds)
    topic.check()
    return {key: report[key] for key in ("p50_us", "p99_us")}


def _answer_bytes(broker: BrokerProcess, frame: bytes) -> int:
    """The size of the answer to a request, its size in front."""
    with socket.create_connection((HOST, broker.port)) as asking:
        asking.sendall(frame)
        return 4 + int.from_bytes(asking.recv(4, socket.MSG_WAITALL), "big")


def ask_versions(topic: Topic) -> bytes:
    """A small request that takes the full path, as the Java clients of today send it."""
    request = ApiVersionsRequest(client_software_name="crowd", client_software_version="1")
    return encode_request(request, 4, 0, "crowd")


def produce(topic: Topic) -> bytes:
    """A small request that takes the fast path."""
    return produce_frame(topic.id, 0, topic.batch)


def ask_for_topics(topic: Topic) -> bytes:
    """A request with a large answer."""
    return encode_request(MetadataRequest(topics=None), 12, 0, "crowd")


ROWS = (
    FairnessRow("alone"),
    FairnessRow("beside-api-versions", PIPELINING, WINDOW, ask_versions),
    FairnessRow("beside-produce", PIPELINING, WINDOW, produce),
    FairnessRow("beside-metadata", ASKING, 1, ask_for_topics),
)


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # The brokers end with us.
    report = Report(quiet=options.json)
    measure([row for row in ROWS if wanted(row.name, options.rows)], options, report)
    for verdict in (*broker_bars.verdicts(report.results, BARS), *beside_alone(report.results)):
        report.say(verdict)
    print(json.dumps(report.results))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fairness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one short round of each row")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="some rows, by name")
    add_peer_arguments(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.set_defaults(floor=False)  # `compare` can measure one; here it would say nothing.
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def measure(rows: list[FairnessRow], options: argparse.Namespace, report: Report) -> None:
    """Every row, the contenders interleaved."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-bench-")))
        launchers = contenders(options, scratch)
        brokers = [
            stack.enter_context(BrokerProcess(each, scratch / each.name)) for each in launchers
        ]
        report.say(f"load {os.getloadavg()[0]:.1f} before; warming up")
        for broker in brokers:
            if any(row.frame is ask_for_topics for row in rows):
                create_topics_of(broker, QUICK_TOPICS if options.quick else TOPICS)
            for row in rows * (WARM_UP_ROUNDS if broker.name == KAFKA else 1):
                row.round(broker, Effort(options.seconds / 3, 0.2, 0))
        for row in rows:
            report.row(row.name, compare(row, brokers, options))
        report.say(f"load {os.getloadavg()[0]:.1f} after")


def create_topics_of(broker: BrokerProcess, count: int) -> None:
    """Topics for Metadata to describe."""
    with broker.client() as client:
        for first in range(0, count, TOPICS_PER_REQUEST):
            numbers = range(first, min(first + TOPICS_PER_REQUEST, count))
            topics = [
                create_topics.CreatableTopic(
                    name=f"one-of-many-{number}", num_partitions=1, replication_factor=1
                )
                for number in numbers
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
            answer = client.ask(request, 7, create_topics.CreateTopicsResponse)
            if any(each.error_code for each in answer.topics):
                sys.exit(f"{broker.name} does not create {count} topics")


def beside_alone(results: dict[str, Pair]) -> Iterator[str]:
    """How many times longer the producer waits beside each crowd."""
    alone = results.get("alone_p99_us", {}).get("ours")
    for name, pair in results.items():
        ours = pair["ours"]
        if alone and ours and name.startswith("beside-") and name.endswith("_p99_us"):
            times = ours / alone
            verdict = "holds" if times <= ALONE_TIMES_MAX else "FAILS"
            yield f"{verdict:6} {name:44} {times:9.1f}x  (bar <= {ALONE_TIMES_MAX}x of alone)"


if __name__ == "__main__":
    main()
