"""Kills brokers of a cluster that real producers write to, again and again.

    python -m tests.integration.cluster.replication_kill --rounds 100

Three processes, each a broker and a controller; topics of both durabilities with three replicas and
`min.insync.replicas=2`. Producers write with `acks=all` while a node, mostly one that leads, gets
`kill -9`; now and then it is two at once, a SIGTERM, or a SIGSTOP for longer than the session. All
that was promised must be there at the end, at its offset; what the idempotent producer wrote, once
and in order; and the logs of the three replicas must be the same, byte for byte.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

from millstream import Admin
from millstream.client.admin.topics import NewTopic
from tests.integration.faults.kill import say, verify_order
from tests.integration.faults.load import Place, Writer, read_all
from tests.integration.node.harness import NodeProcess, free_port
from tests.waiting import let_time_pass, until

NODES = (1, 2, 3)
TOPICS = {"on-disk": "disk", "in-cache": "page-cache"}
PARTITIONS = 3
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SESSION_MS = 2000
SETTLE_SECONDS_MAX = 90
SETTINGS = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
}
PRODUCERS: dict[str, dict[str, object]] = {
    "idempotent": {"enable.idempotence": True},
    "plain": {"retries": 0, "max.in.flight": 1},
}


@dataclass(slots=True)
class Report:
    """What all rounds together have shown."""

    rounds: int = 0
    kills: int = 0
    promised: int = 0
    failed: int = 0
    verified: int = 0


class Cluster:
    """Three directories, their ports, and the lives of the nodes on them."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._ports = {each: (free_port(), free_port()) for each in NODES}
        self._nodes: dict[int, NodeProcess] = {}
        for each in NODES:
            self._format(each)

    @property
    def address(self) -> str:
        """All brokers."""
        return ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())

    def _format(self, node_id: int) -> None:
        port, controller_port = self._ports[node_id]
        voters = ",".join(f"{each}@127.0.0.1:{ports[1]}" for each, ports in self._ports.items())
        settings = {
            **SETTINGS,
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
        }
        path = self._config(node_id)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "millstream", "storage", "format", "-t", CLUSTER_ID]
        where = ["--config", str(path), "--data", str(self.data(node_id))]
        subprocess.run([*command, *where], check=True, capture_output=True)

    def _config(self, node_id: int) -> Path:
        return self._base / f"{node_id}.properties"

    def data(self, node_id: int) -> Path:
        """A node's directory."""
        return self._base / f"data-{node_id}"

    def start(self, *node_ids: int) -> None:
        """Start nodes; returns when they serve."""
        for each in node_ids:
            self._nodes[each] = NodeProcess(self.data(each), "--config", str(self._config(each)))
        for each in node_ids:
            self._nodes[each].until_ready()

    def end(self, how: signal.Signals, *node_ids: int) -> None:
        """End nodes, all at the same time."""
        for each in node_ids:
            self._nodes[each].signal(how)
        for each in node_ids:
            _, log = self._nodes[each].finish()
            assert "Traceback" not in log, log
            self._nodes.pop(each).close()

    def pause(self, node_id: int, seconds: float) -> None:
        """Let a node stand still."""
        self._nodes[node_id].signal(signal.SIGSTOP)
        let_time_pass(seconds)
        self._nodes[node_id].signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave no process."""
        for node in self._nodes.values():
            node.signal(signal.SIGCONT)
            node.close()

    def log_bytes(self, node_id: int, place: Place) -> bytes:
        """The records of a replica that is not running."""
        directory = self.data(node_id) / f"{place[0]}-{place[1]}"
        return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))


class Rounds:
    """Producers, and what is done to the nodes they write to."""

    def __init__(self, base: Path, seed: int) -> None:
        self._random = Random(seed)
        self._seed = seed
        self._cluster = Cluster(base)
        self._places: list[Place] = [
            (topic, partition) for topic in TOPICS for partition in range(PARTITIONS)
        ]
        self._writers: list[Writer] = []
        self.report = Report()

    def run(self, rounds: int) -> Report:
        """Live and die so many times; raises at the first lie."""
        try:
            self._cluster.start(*NODES)
            with Admin(self._cluster.address) as admin:
                self._create(admin)
                self._begin_writing()
                for number in range(1, rounds + 1):
                    self._one_round(number, admin)
                for writer in self._writers:
                    writer.finish()
                self._until_in_sync(admin)
                self._verify()
            self._cluster.end(signal.SIGTERM, *NODES)
            self._compare_logs()
        finally:
            for writer in self._writers:
                writer._is_stopping.set()
            self._cluster.close()
        return self.report

    def _create(self, admin: Admin) -> None:
        for topic, durability in TOPICS.items():
            config = {
                "millstream.durability": durability,
                "min.insync.replicas": "2",
                "segment.bytes": str(1 << 20),
            }
            admin.create_topics(
                [NewTopic(topic, PARTITIONS, replication_factor=len(NODES), config=config)]
            )

    def _begin_writing(self) -> None:
        for number, (name, settings) in enumerate(PRODUCERS.items()):
            address = self._cluster.address
            writer = Writer(name, address, self._places, self._seed + number, **settings)
            self._writers.append(writer)
            writer.start()

    def _one_round(self, number: int, admin: Admin) -> None:
        self._wait_for_promises()
        let_time_pass(self._random.uniform(0.0, 0.8))
        chance = self._random.random()
        victims = self._victims(admin, 2 if chance < 0.2 else 1)
        if chance > 0.9:
            what = "SIGSTOP"
            self._cluster.pause(victims[0], SESSION_MS / 1000 + 1)
        else:
            how = signal.SIGTERM if chance > 0.8 else signal.SIGKILL
            what = how.name
            self._cluster.end(how, *victims)
            self.report.kills += len(victims)
            if len(victims) == 1 and self._random.random() < 0.5:
                self._wait_for_promises()
            self._cluster.start(*victims)
        if self._random.random() < 0.5:
            self._until_in_sync(admin)
        self.report.rounds = number
        self.report.promised = sum(writer.ledger.count for writer in self._writers)
        self.report.failed = sum(writer.ledger.failed for writer in self._writers)
        say(
            f"round {number}: {what} of {victims}; promised {self.report.promised}, "
            f"{self.report.failed} failed"
        )

    def _victims(self, admin: Admin, count: int) -> list[int]:
        """A leader and perhaps others."""
        topic, partition = self._random.choice(self._places)
        described = admin.describe_topics([topic])[topic]
        leader = described.partitions[partition].leader
        others = [each for each in NODES if each != leader]
        self._random.shuffle(others)
        return ([leader] if leader in NODES else []) + others[: count - (leader in NODES)]

    def _wait_for_promises(self) -> None:
        before = {writer: writer.ledger.count for writer in self._writers}
        until(
            lambda: all(each.ledger.count > count for each, count in before.items()),
            lambda: "no progress",
            limit_seconds=SETTLE_SECONDS_MAX,
        )

    def _until_in_sync(self, admin: Admin) -> None:
        def lagging() -> list[str]:
            return [
                f"{name}-{each.index}: {sorted(each.isr)}"
                for name, topic in admin.describe_topics(list(TOPICS)).items()
                for each in topic.partitions
                if set(each.isr) != set(NODES)
            ]

        until(lambda: not lagging(), lambda: str(lagging()), limit_seconds=SETTLE_SECONDS_MAX)

    def _verify(self) -> None:
        promised = [writer.ledger.snapshot() for writer in self._writers]
        found = read_all(self._cluster.address, self._places)
        for place, records in found.items():
            assert sorted(records) == list(range(len(records))), f"{place} has gaps"
            for ledger in promised:
                for offset, value in ledger.get(place, {}).items():
                    assert records.get(offset) == value, f"{place} lost {value!r} at {offset}"
            # A leader that is deposed while a request waits for replicas answers that it does not
            # lead, and librdkafka sends that again whatever `retries` says: only an idempotent
            # producer's records are there once.
            once = {at: value for at, value in records.items() if value.startswith(b"idempotent ")}
            verify_order(place, once)
        self.report.verified = sum(len(records) for records in found.values())

    def _compare_logs(self) -> None:
        for place in self._places:
            logs = {self._cluster.log_bytes(each, place) for each in NODES}
            assert len(logs) == 1, f"the replicas of {place} differ: {[len(each) for each in logs]}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        report = Rounds(Path(base), arguments.seed).run(arguments.rounds)
    say(
        f"{report.rounds} rounds, {report.kills} kills, {report.promised} records promised, "
        f"{report.verified} found: nothing lost, all replicas equal"
    )


if __name__ == "__main__":
    main()
