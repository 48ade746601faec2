"""How long a test waits for an embedded broker: import, start, first acknowledged record, stop.

    python -m benchmarks.embedded [--quick] [--json]

Each cold round is a process of its own, as the first test of a run has it; warm rounds start and
stop brokers in one process, as a suite does that wants a new one for each test. The first record
goes through a raw socket, and through confluent-kafka, which has its own start-up. Medians, in ms;
the last line is one JSON object. There is no peer: Apache Kafka cannot be embedded in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_COLD_ROUNDS, _QUICK_COLD_ROUNDS = 9, 3
_WARM_ROUNDS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--round", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.round:
        print(json.dumps(cold_round()))
        return
    rounds = _QUICK_COLD_ROUNDS if arguments.quick else _COLD_ROUNDS
    result = summary([measured_process() for _ in range(rounds)])
    if not arguments.json:
        print(f"{rounds} processes, load {os.getloadavg()[0]:.1f}")
        for name, milliseconds in result.items():
            print(f"  {name:<46} {milliseconds:8.1f} ms")
    print(json.dumps({k: {"ours": v, "peer": None, "ratio": None} for k, v in result.items()}))


def measured_process() -> dict[str, float]:
    """One cold round."""
    command = [sys.executable, "-m", "benchmarks.embedded", "--round"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def summary(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}


def cold_round() -> dict[str, float]:
    """What the first broker of a process costs, then what others do."""
    figures: dict[str, float] = {}
    began = time.perf_counter()
    from millstream.testing import EmbeddedBroker

    figures["import"] = _since(began)
    began = time.perf_counter()
    with EmbeddedBroker() as broker:
        figures["start"] = _since(began)
        broker.create_topic("raw")
        figures["start to topic created"] = _since(began)
        produce = raw_producer(broker.bootstrap_servers, "raw")
        figures["first record acknowledged, raw socket"] = _timed(produce)
        figures["second record acknowledged, raw socket"] = _timed(produce)
        broker.create_topic("confluent")
        figures["first record acknowledged, confluent-kafka"] = _timed(
            confluent_producer(broker.bootstrap_servers, "confluent")
        )
        figures["restart"] = _timed(broker.restart)
        figures["reset"] = _timed(broker.reset)
    for in_memory in (False, True):
        where = "memory" if in_memory else "temporary directory"
        figures[f"warm start and stop, {where}"] = statistics.median(
            _timed(lambda: EmbeddedBroker(in_memory=in_memory).__enter__().close())  # noqa: B023
            for _ in range(_WARM_ROUNDS)
        )
    return figures


def raw_producer(servers: str, topic: str) -> Callable[[], None]:
    """A connection each time, and one record with acks=all; the client is imported before."""
    from tests.integration.node.harness import Client

    def produce() -> None:
        with Client(servers) as client:
            error_code, _ = client.produce(topic, b"value")
            assert error_code == 0

    return produce


def confluent_producer(servers: str, topic: str) -> Callable[[], None]:
    """A producer as a user would make it; its library is imported before."""
    from confluent_kafka import Producer

    def produce() -> None:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors == [None]

    return produce


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return _since(began)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main()
