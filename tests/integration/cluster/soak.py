"""Three controllers and three brokers as processes, disturbed again and again.

    python -m tests.integration.cluster.soak --minutes 60 --seed 1

Nodes get `kill -9` and SIGSTOP, and wires between them are cut, one way or both, while topics come
and go. At all times at most one controller is active in an epoch. In the end peace is made: every
node has the same metadata log and the same image, byte for byte, and what the cluster had promised
about topics is so.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from millstream import Admin
from millstream.client.admin.topics import NewTopic
from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.metadata.checkpoints import decode_checkpoint
from millstream.metadata.image import MetadataProvenance
from millstream.metadata.loader import MetadataLoader
from millstream.metadata.records import decode_batch
from millstream.metadata.snapshots import SnapshotEmitter
from millstream.raft.batches import walk_batches
from millstream.types import OffsetAndEpoch
from tests.integration.cluster.wires import Wires
from tests.integration.node.harness import free_port
from tests.waiting import let_time_pass, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.metadata.image import MetadataImage

CONTROLLERS = (1, 2, 3)
BROKERS = (4, 5, 6)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
PEACE_SECONDS_MAX = 90
DISTURBED_SECONDS = (0.3, 4.0)
DELETED_SHARE = 0.4
TIMEOUT_SECONDS = 15.0
_ACTIVE = re.compile(r"this node is the active controller, epoch (\d+)")
_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    # In peace nothing is written: all logs come to the same end.
    "metadata.max.idle.interval.ms": "0",
}


class SoakNode:
    """One process and its directory."""

    def __init__(self, scratch: Path, node_id: int, listener: str, quorum: str) -> None:
        self.node_id = node_id
        self.data = scratch / f"data-{node_id}"
        self._log = scratch / f"node-{node_id}.log"
        self._settings = scratch / f"node-{node_id}.properties"
        is_controller = node_id in CONTROLLERS
        settings = {
            **_SETTINGS,
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(node_id),
            "log.dirs": str(self.data),
            "controller.quorum.voters": quorum,
            "listeners": listener,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self._settings.write_text("".join(lines))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it wrote in all its lives."""
        return self._log.read_text()

    @property
    def is_running(self) -> bool:
        """Whether it was launched and has not ended."""
        return self._process is not None and self._process.poll() is None

    def advertise(self, listener: str) -> None:
        """Have it reached through a proxy."""
        with self._settings.open("a") as file:
            file.write(f"advertised.listeners={listener}\n")

    def format(self) -> None:
        """Take the directory."""
        command = ("storage", "format", "-t", CLUSTER_ID, "--config", str(self._settings))
        subprocess.run([sys.executable, "-m", "millstream", *command], check=True, stdout=-3)

    def launch(self) -> None:
        """Begin to start, on what the last life has left."""
        command = ("server", "start", "--config", str(self._settings))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millstream", *command], stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Pause it or let it go on."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def image(self) -> tuple[MetadataImage, bytes]:
        """What its metadata log says after its end, and that as a snapshot."""
        directory = self.data / "__cluster_metadata-0"
        loader, end = MetadataLoader(_fail), 0
        for path in sorted(directory.glob("*.checkpoint"))[-1:]:
            checkpoint = decode_checkpoint(path.read_bytes())
            end, epoch = (int(part) for part in path.stem.split("-"))
            loader.load_snapshot(checkpoint.batches, OffsetAndEpoch(epoch, end), 0)
        for path in sorted(directory.glob("*.log")):
            for found in walk_batches(path.read_bytes()):
                if found.base_offset >= end and not found.is_control:
                    loader.load_batches([decode_batch(found)], found.next_offset)
        image = replace(loader.image, provenance=MetadataProvenance())
        return image, b"".join(SnapshotEmitter().emit(image))


def _fail(problem: str, error: Exception) -> None:
    raise AssertionError(problem) from error


@dataclass(slots=True)
class Promises:
    """What the cluster has said about topics; a name whose last request failed is in neither."""

    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unknown: int = 0


class Topics(threading.Thread):
    """Creates and deletes topics, one request after the other, until it is told to stop."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="topics")
        self._servers = bootstrap
        self._random = Random(seed)
        self.stop_asked = threading.Event()
        self._numbers = 0
        self.promises = Promises()

    @property
    def decided(self) -> int:
        """How many requests have succeeded."""
        return len(self.promises.there) + 2 * len(self.promises.gone)

    def stop(self) -> None:
        """End after the request under way."""
        self.stop_asked.set()
        self.join()

    def run(self) -> None:
        """See `Thread`."""
        while not self.stop_asked.is_set():
            with (
                suppress(MillstreamError),
                Admin(self._servers, default_api_timeout=TIMEOUT_SECONDS) as admin,
            ):
                while not self.stop_asked.is_set():
                    self._change(admin)

    def _change(self, admin: Admin) -> None:
        promises = self.promises
        if promises.there and self._random.random() < DELETED_SHARE:
            name = self._random.choice(sorted(promises.there))
            promises.there.discard(name)
            self._attempt(lambda: admin.delete_topics([name]).raise_first())
            promises.gone.add(name)
        else:
            self._numbers += 1
            name = f"topic-{self._numbers}"
            new = NewTopic(name, 1, replication_factor=1)
            self._attempt(lambda: admin.create_topics([new]).raise_first())
            promises.there.add(name)

    def _attempt(self, ask: Callable[[], object]) -> None:
        try:
            ask()
        except MillstreamError:
            self.promises.unknown += 1
            raise


class Soak:
    """The cluster, what is done to it, and what must hold."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self._random = Random(seed)
        self._wires = Wires()
        ports = {each: free_port() for each in (*CONTROLLERS, *BROKERS)}
        proxies = {each: self._wires.lead_to(each, ports[each]) for each in CONTROLLERS}
        quorum = ",".join(f"{each}@127.0.0.1:{port}" for each, port in proxies.items())
        self.nodes = {
            each: SoakNode(
                scratch,
                each,
                f"{'CONTROLLER' if each in CONTROLLERS else 'PLAINTEXT'}://127.0.0.1:{port}",
                quorum,
            )
            for each, port in ports.items()
        }
        for each, port in proxies.items():
            self.nodes[each].advertise(f"CONTROLLER://127.0.0.1:{port}")
        self.bootstrap = ",".join(f"127.0.0.1:{ports[each]}" for each in BROKERS)
        self.rounds = 0
        self.topics = Topics(self.bootstrap, seed)

    def start(self) -> None:
        """Return when all brokers are members and the first topic was decided on."""
        for each in self.nodes.values():
            each.format()
            each.launch()
        self.topics.start()
        self._until_decided()

    def disturb(self) -> None:
        """One disturbance and its end; decisions go on afterwards."""
        victims = self._random.sample(sorted(self.nodes), self._random.choice((1, 1, 2)))
        undo = [self._disturb(self.nodes[each]) for each in victims]
        let_time_pass(self._random.uniform(*DISTURBED_SECONDS))
        for act in undo:
            act()
        self._until_decided()
        self.rounds += 1
        self.check_leaders()

    def _disturb(self, node: SoakNode) -> Callable[[], None]:
        kind = self._random.choice(("kill", "pause", "cut in", "cut out", "cut"))
        others = [each for each in self.nodes if each != node.node_id]
        if kind == "kill":
            node.kill()
            return node.launch
        if kind == "pause":
            node.signal(signal.SIGSTOP)
            return lambda: node.signal(signal.SIGCONT)
        inwards = [(each, node.node_id) for each in others]
        outwards = [(node.node_id, each) for each in CONTROLLERS]
        self._wires.cut({"cut in": inwards, "cut out": outwards}.get(kind, inwards + outwards))
        return self._wires.mend

    def _until_decided(self) -> None:
        before = self.topics.decided
        until(
            lambda: self.topics.decided > before + 1,
            self._tell,
            limit_seconds=PEACE_SECONDS_MAX,
        )

    def check_leaders(self) -> int:
        """At most one controller was active in each epoch; how many epochs had one."""
        active: dict[int, int] = {}
        for node_id in CONTROLLERS:
            for found in _ACTIVE.finditer(self.nodes[node_id].log):
                epoch = int(found[1])
                other = active.setdefault(epoch, node_id)
                assert other == node_id, f"epoch {epoch} is led by {other} and {node_id}"
        return len(active)

    def finish(self) -> None:
        """Make peace, and compare all nodes with each other and with what was promised."""
        self.topics.stop()
        assert all(each.is_running for each in self.nodes.values()), self._tell()
        until(self._is_level, self._tell, limit_seconds=PEACE_SECONDS_MAX, look_seconds=0.1)
        for each in self.nodes.values():
            each.kill()
        images = {each: node.image() for each, node in self.nodes.items()}
        image, emitted = images[CONTROLLERS[0]]
        for node_id, (_, others) in images.items():
            assert others == emitted, f"node {node_id} has another image"
        names = set(image.topics.by_name)
        assert self.topics.promises.there <= names, self.topics.promises.there - names
        assert not self.topics.promises.gone & names, self.topics.promises.gone & names

    def _is_level(self) -> bool:
        with suppress(MillstreamError), Admin(self.bootstrap, default_api_timeout=5.0) as admin:
            quorum = admin.describe_quorum()
            replicas = quorum.voters + quorum.observers
            ends = {each.node_id: each.log_end_offset for each in replicas}
            are_level = set(ends.values()) == {quorum.high_watermark}
            members = {each.node_id for each in admin.describe_cluster().brokers}
            return are_level and set(ends) == set(self.nodes) and members == set(BROKERS)
        return False

    def _tell(self) -> str:
        logs = (f"--- {node_id}\n{each.log[-2500:]}" for node_id, each in self.nodes.items())
        return f"after {self.rounds} rounds there is no peace\n" + "\n".join(logs)

    def close(self) -> None:
        """End everything that still runs."""
        self.topics.stop_asked.set()
        for each in self.nodes.values():
            each.kill()
        if self.topics.is_alive():
            self.topics.join()
        self._wires.close()


def run(scratch: Path, seed: int, is_over: Callable[[int], bool]) -> Soak:
    """Disturb a cluster until it is over, told the number of rounds; then compare."""
    soak = Soak(scratch, seed)
    try:
        soak.start()
        while not is_over(soak.rounds):
            soak.disturb()
        soak.finish()
    finally:
        soak.close()
    return soak


def main() -> None:
    """Run for some minutes and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + round(given.minutes * 60_000)
    scratch = Path(tempfile.mkdtemp(prefix="soak-cluster-"))
    try:
        soak = run(scratch, given.seed, lambda rounds: clock.monotonic_ms() >= end_ms)
    except BaseException:
        sys.stdout.write(f"seed {given.seed} failed; data and logs are in {scratch}\n")
        raise
    promises = soak.topics.promises
    sys.stdout.write(
        f"{soak.rounds} disturbances, {soak.check_leaders()} epochs with an active controller, "
        f"{len(promises.there)} topics there, {len(promises.gone)} gone, "
        f"{promises.unknown} requests without an answer; all images are equal\n"
    )
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
