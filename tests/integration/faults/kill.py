"""Kills a broker that real producers write to, again and again.

    python -m tests.integration.faults.kill --rounds 100

An idempotent producer and two that never send anything twice write with `acks=all` to topics of
both durabilities, and an administrator makes topics, while the broker gets `kill -9`, sometimes
before it is ready, and now and then a SIGTERM. It starts again on the same directory and port. All
that was promised in any round must be there: records at their offsets, once, in order; topics with
their settings; deleted topics not. The producers live through all of it, so that a producer state
which was lost would show as a duplicate or a gap.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from millstream.clock import SystemClock
from tests.integration.faults.load import Place, Writer, confluent_kafka, read_all
from tests.integration.node.harness import NodeProcess, free_port
from tests.waiting import let_time_pass, until

admin_api: Any = importlib.import_module("confluent_kafka.admin")

TOPICS = {"on-disk": "disk", "in-cache": "page-cache"}
PARTITIONS = 3
PRODUCERS: dict[str, dict[str, object]] = {
    "idempotent": {"enable.idempotence": True},
    "plain": {"retries": 0, "max.in.flight": 1},
    # What it had not sent yet when the connection broke may come after what it sent later.
    "unordered": {"retries": 0},
}
VERIFY_EVERY = 5
CLEAN_SHARE = 0.15
"""How often a SIGTERM takes the place of the kill."""
STILLBORN_SHARE = 0.2
"""How often the next broker is killed before it is ready."""
PROGRESS_SECONDS_MAX = 60
_SEGMENT_BYTES = 1 << 20


@dataclass(slots=True)
class KillReport:
    """What all rounds together have shown."""

    rounds: int = 0
    promised: int = 0
    failed: int = 0
    verified: int = 0
    topics: int = 0
    recoveries_ms: list[int] = field(default_factory=list)


class Administrator:
    """Makes and deletes topics in a thread; knows which the broker promised."""

    def __init__(self, address: str) -> None:
        self._client = admin_api.AdminClient(
            {"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 100}
        )
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="administrator")
        self._number = 0
        self.existing: dict[str, str] = {}
        """Promised topics and their `retention.ms`."""
        self.deleted: set[str] = set()
        self._doubtful: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """No more changes."""
        self._is_stopping.set()
        self._thread.join()

    def create(self, name: str, partitions: int, **config: str) -> None:
        """Make a topic; raises if that is not promised."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = admin_api.NewTopic(name, partitions, 1, config=settings)
        self._client.create_topics([topic], operation_timeout=10)[name].result(20)

    def _run(self) -> None:
        while not self._is_stopping.wait(0.02):
            self._number += 1
            name, retention = f"made-{self._number}", str(3_600_000 + self._number)
            try:
                self.create(name, 1, retention_ms=retention)
                self.existing[name] = retention
                if self._number % 4 == 0:
                    self._delete(f"made-{self._number - 2}")
            except (confluent_kafka.KafkaException, TimeoutError):
                continue  # The broker was killed meanwhile: nothing was promised.

    def _delete(self, name: str) -> None:
        if name not in self.existing:
            return
        self._doubtful.add(name)
        self._client.delete_topics([name], operation_timeout=10)[name].result(20)
        self._doubtful.discard(name)
        self.deleted.add(name)

    def verify(self) -> int:
        """What was promised by now holds; how many topics there are."""
        expected, deleted = dict(self.existing), set(self.deleted)
        found = set(self._client.list_topics(timeout=30).topics)
        lost = set(expected) - self.deleted - self._doubtful - found
        assert not lost, f"topics are gone: {sorted(lost)}"
        assert not deleted & found, f"deleted topics are back: {sorted(deleted & found)}"
        asked = [
            admin_api.ConfigResource(admin_api.ResourceType.TOPIC, name)
            for name in sorted(set(expected) & found - self._doubtful)[-20:]
        ]
        if asked:
            for resource, answer in self._client.describe_configs(asked).items():
                value = answer.result(30)["retention.ms"].value
                assert value == expected[resource.name], f"{resource.name} forgot its settings"
        return len(found)


class Rounds:
    """A directory, a port, and the lives of the brokers on them."""

    def __init__(self, base: Path, seed: int) -> None:
        self._random = Random(seed)
        self._clock = SystemClock()
        self._data = base / "data"
        self._port = free_port()
        self._address = f"127.0.0.1:{self._port}"
        self._node: NodeProcess | None = None
        self._seed = seed
        self._places: list[Place] = [
            (topic, partition) for topic in TOPICS for partition in range(PARTITIONS)
        ]
        self._writers: list[Writer] = []
        self.report = KillReport()

    def run(self, rounds: int, say: Any = lambda line: None) -> KillReport:
        """Live and die so many times; raises at the first lie."""
        administrator = Administrator(self._address)
        try:
            self._start()
            for topic, durability in TOPICS.items():
                administrator.create(
                    topic,
                    PARTITIONS,
                    millstream_durability=durability,
                    segment_bytes=str(_SEGMENT_BYTES),
                )
            self._begin_writing()
            administrator.start()
            for number in range(1, rounds + 1):
                self._one_round(number, administrator, say)
            self._finish(administrator)
        finally:
            self._is_over(administrator)
        return self.report

    def _begin_writing(self) -> None:
        for number, (name, settings) in enumerate(PRODUCERS.items()):
            writer = Writer(name, self._address, self._places, self._seed + number, **settings)
            self._writers.append(writer)
            writer.start()

    def _one_round(self, number: int, administrator: Administrator, say: Any) -> None:
        self._wait_for_promises()
        let_time_pass(self._random.uniform(0.0, 1.0))
        is_clean = self._random.random() < CLEAN_SHARE
        self._end(signal.SIGTERM if is_clean else signal.SIGKILL)
        if self._random.random() < STILLBORN_SHARE:
            # A start, too, may be the last thing that a process does.
            self._launch()
            let_time_pass(self._random.uniform(0.15, 0.5))
            self._end(signal.SIGKILL)
        self._start()
        if number % VERIFY_EVERY == 0:
            self._verify(administrator)
        self.report.rounds = number
        self.report.promised = sum(writer.ledger.count for writer in self._writers)
        self.report.failed = sum(writer.ledger.failed for writer in self._writers)
        say(
            f"round {number}: {'SIGTERM' if is_clean else 'SIGKILL'}, ready again after "
            f"{self.report.recoveries_ms[-1]} ms; promised "
            + ", ".join(f"{each.name} {each.ledger.count}" for each in self._writers)
            + f"; {self.report.failed} failed, {self.report.verified} verified, "
            f"{len(administrator.existing)} topics made"
        )

    def _wait_for_promises(self) -> None:
        """Until every producer has found the broker again; they take their time."""
        before = {writer: writer.ledger.count for writer in self._writers}

        def stuck() -> list[str]:
            return [each.name for each, count in before.items() if each.ledger.count == count]

        until(
            lambda: not stuck(),
            lambda: f"no progress: {', '.join(stuck())}",
            limit_seconds=PROGRESS_SECONDS_MAX,
        )

    def _finish(self, administrator: Administrator) -> None:
        administrator.finish()
        for writer in self._writers:
            writer.finish()
        self._end(signal.SIGKILL)
        self._start()
        self._verify(administrator)
        self.report.promised = sum(writer.ledger.count for writer in self._writers)
        self._end(signal.SIGTERM)

    def _is_over(self, administrator: Administrator) -> None:
        """Whatever happened, leave no thread and no process."""
        administrator._is_stopping.set()
        for writer in self._writers:
            writer._is_stopping.set()
        if self._node is not None:
            self._node.close()

    # The broker.

    def _launch(self) -> None:
        self._node = NodeProcess(self._data, "--listen", self._address)

    def _start(self) -> None:
        began_ms = self._clock.monotonic_ms()
        self._launch()
        assert self._node is not None
        self._node.until_ready()
        self.report.recoveries_ms.append(self._clock.monotonic_ms() - began_ms)

    def _end(self, how: signal.Signals) -> None:
        assert self._node is not None
        code, log = self._node.finish(how)
        assert code == (0 if how is signal.SIGTERM else -signal.SIGKILL), (code, log)
        for word in ("ERROR", "CRITICAL", "Traceback"):
            assert word not in log, log
        self._node.close()

    # The truth.

    def _verify(self, administrator: Administrator) -> None:
        promised = [writer.ledger.snapshot() for writer in self._writers]
        found = read_all(self._address, self._places)
        for place, records in found.items():
            assert sorted(records) == list(range(len(records))), f"{place} has gaps"
            for ledger in promised:
                for offset, value in ledger.get(place, {}).items():
                    assert records.get(offset) == value, f"{place} lost {value!r} at {offset}"
            verify_order(place, records)
        self.report.verified = sum(len(records) for records in found.values())
        self.report.topics = administrator.verify()


def verify_order(place: Place, records: dict[int, bytes]) -> None:
    """Each producer's records are there once, and in the order in which it sent them."""
    numbers: dict[str, list[int]] = {}
    for offset in sorted(records):
        name, number, *_ = records[offset].split()
        numbers.setdefault(name.decode(), []).append(int(number))
    for producer, found in numbers.items():
        twice = {number for number, count in Counter(found).items() if count > 1}
        assert not twice, f"{place} has records of {producer} twice: {sorted(twice)}"
        if producer != "unordered":
            assert found == sorted(found), f"{place} has records of {producer} in another order"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        report = Rounds(Path(base), arguments.seed).run(arguments.rounds, say)
    say(
        f"{report.rounds} rounds, {report.promised} records promised, {report.verified} found, "
        f"{report.topics} topics: nothing lost, nothing twice"
    )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
