"""Kills tasks, drivers and brokers at every step of the exactly-once protocol, and compares.

`python -m tests.spark.exactly_once_soak --kills 200` or `make soak-spark KILLS=200`; a few kills of
it run with the tests. Whatever was killed: what a reader of committed records sees at the end is
the input, every row once. The input is files, or with `--from-topic` a topic of the same brokers.

A kill makes some later ones impossible: who is gone at the end of a commit never comes to the
moment after it. More batches follow until there were as many kills as asked for; if there are
fewer in the end, or the broker died more often than it was killed, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import millstream
from tests.integration.node.harness import NodeProcess, free_port
from tests.spark.soak_job import ROWS_PER_BATCH, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

IsolationLevel: TypeAlias = Literal["read_committed", "read_uncommitted"]

TOPIC, INPUT_TOPIC = "soak-output", "soak-input"
ROUNDS_MAX = 6
KILLS_PER_TASK_MAX = 2
LIFE_SECONDS_MAX = 300
MOMENTS = (
    "begin",
    "initialized",
    "read",
    "producing",
    "produced",
    "marked",
    "committing",
    "committed",
)
"""The steps of a task, in their order."""
DRIVER_MOMENTS = ("finishing", "finished")
"""Around the driver's end of a batch: the tasks have committed and Spark does not know it yet."""
KINDS = ("task",) * 13 + ("broker",) * 4 + ("driver",) * 2 + ("zombie",)


@dataclass
class Outcome:
    """What a soak has done."""

    kills: Counter[str] = field(default_factory=Counter)
    """How many of each kind have happened."""
    drivers: int = 0
    brokers: int = 0
    rows: int = 0
    written: int = 0
    """Rows in the log, with those of aborted transactions."""


def draw_plan(seed: int, kills: int, kinds: tuple[str, ...] = KINDS) -> dict[str, str]:
    """Moment to kind, spread over as many batches as are needed."""
    chance = random.Random(seed)
    batches = max(2, -(-kills // (TASKS + 1)))
    places = [(batch, task) for batch in range(batches) for task in range(TASKS)]
    places = places * KILLS_PER_TASK_MAX
    chance.shuffle(places)
    plan: dict[str, str] = {}
    while len(plan) < kills:
        kind = chance.choice(kinds)
        if kind in ("driver", "broker") and chance.random() < 0.3:
            moment = f"{chance.randrange(batches)}-driver-{chance.choice(DRIVER_MOMENTS)}"
        else:
            batch, task = places.pop()
            # Every step has its turn, in few kills as in many.
            moment = f"{batch}-{task}-{MOMENTS[len(plan) % len(MOMENTS)]}"
        plan.setdefault(moment, kind)
    return plan


class Soak:
    """One input, one topic, and as many lives of a job as its kills make necessary."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        plan: dict[str, str],
        seed: int,
        *,
        is_from_topic: bool = False,
    ) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.outcome = Outcome()
        self.expected: Counter[tuple[bytes, bytes]] = Counter()
        self._input_topic = INPUT_TOPIC if is_from_topic else None
        self._batches = 0
        self._lives_max = 0
        for name in ("plan", "claimed", "done", "lives", "zombies", "input"):
            (directory / name).mkdir(parents=True)
        settings = {
            "directory": str(directory),
            "bootstrap": bootstrap,
            "topic": TOPIC,
            "input_topic": self._input_topic,
            "seed": seed,
        }
        (directory / "job.json").write_text(json.dumps(settings))
        with millstream.Admin(bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=4)
            if self._input_topic is not None:
                admin.create_topic(self._input_topic, partitions=TASKS)
        self.add(plan)

    def add(self, plan: dict[str, str]) -> None:
        """More kills, in batches after those that are there."""
        for moment, kind in plan.items():
            planned, where = moment.split("-", 1)
            path = self.directory / "plan" / f"{int(planned) + self._batches}-{where}"
            path.write_text(kind)
        batches = 1 + max(int(moment.split("-")[0]) for moment in plan)
        for batch in range(self._batches, self._batches + batches):
            self._write_input(batch)
        self._batches += batches
        self._lives_max += len(plan) + 2

    def _write_input(self, batch: int) -> None:
        rows = [
            {"key": f"k{number % 31}", "value": f"batch {batch} row {number}"}
            for number in range(ROWS_PER_BATCH)
        ]
        self.expected.update((row["key"].encode(), row["value"].encode()) for row in rows)
        if self._input_topic is not None:
            with millstream.Producer(self.bootstrap) as producer:
                for number, row in enumerate(rows):
                    place = number % TASKS
                    producer.send(self._input_topic, row["value"], key=row["key"], partition=place)
            return
        path = self.directory / "input" / f"{batch:05}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))

    def run(self) -> Outcome:
        """Run the job until it ends by itself; raise if what is there is not the input."""
        log = self.directory / "job.log"
        while True:
            self.outcome.drivers += 1
            code = self._live(log)
            self._wake_zombies()
            if code == 0:
                break
            if code != -signal.SIGKILL:
                raise AssertionError(f"the job failed: {log.read_text()[-4000:]}")
            if self.outcome.drivers > self._lives_max:
                raise AssertionError("the job does not end")
        done = (self.directory / "done").iterdir()
        self.outcome.kills = Counter(path.read_text() for path in done)
        self._compare()
        return self.outcome

    def _live(self, log: Path) -> int:
        """One life of the driver; how it ended."""
        for path in (self.directory / "claimed").iterdir():
            # Its process was gone before it could kill: its moment may come again.
            path.rename(self.directory / "plan" / path.name)
        with log.open("ab") as file:
            job = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.soak_job", str(self.directory / "job.json")],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                return job.wait(LIFE_SECONDS_MAX)
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()

    def _wake_zombies(self) -> None:
        """Let tasks without a driver go on: they try to commit what has been written since."""
        for path in (self.directory / "zombies").iterdir():
            with _no_such_process():
                os.kill(int(path.name), signal.SIGCONT)
            path.unlink()

    def _compare(self) -> None:
        found = self._read("read_committed")
        self.outcome.rows = found.total()
        self.outcome.written = self._read("read_uncommitted").total()
        missing, doubled = self.expected - found, found - self.expected
        assert not missing, f"{missing.total()} rows are missing: {list(missing)[:5]}"
        assert not doubled, f"{doubled.total()} rows are too many: {list(doubled)[:5]}"

    def _read(self, isolation_level: IsolationLevel) -> Counter[tuple[bytes, bytes]]:
        read = millstream.read_topic(
            self.bootstrap, TOPIC, columns=["key", "value"], isolation_level=isolation_level
        )
        table = read.to_arrow()
        return Counter(
            zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)
        )


@contextmanager
def _no_such_process() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


class RestartingBroker:
    """A broker that is started again, at the same address, whenever it was killed."""

    def __init__(self, directory: Path) -> None:
        self.address = f"localhost:{free_port()}"
        self.starts = 0
        self._data = directory / "broker"
        self._pid_file = directory / "broker.pid"
        self._is_ending = threading.Event()
        self._node = self._start()
        self._thread = threading.Thread(target=self._watch, name="restarting-broker")
        self._thread.start()

    def _start(self) -> NodeProcess:
        node = NodeProcess(self._data, "--listen", self.address)
        node.until_ready()
        self.starts += 1
        scratch = self._pid_file.with_suffix(".new")
        scratch.write_text(str(node.pid))
        scratch.rename(self._pid_file)
        return node

    def _watch(self) -> None:
        while not self._is_ending.wait(0.05):
            if not self._node.is_running():
                self._node.close()
                self._node = self._start()

    def close(self) -> None:
        """End it for good."""
        self._is_ending.set()
        self._thread.join()
        self._node.close()


def soak(directory: Path, kills: int, seed: int, *, is_from_topic: bool = False) -> Outcome:
    """A whole soak with a broker of its own."""
    directory.mkdir(exist_ok=True)
    broker = RestartingBroker(directory)
    try:
        plan = draw_plan(seed, kills)
        job = Soak(directory, broker.address, plan, seed, is_from_topic=is_from_topic)
        for number in range(1, ROUNDS_MAX + 1):
            outcome = job.run()
            missing = kills - outcome.kills.total()
            if missing <= 0 or number == ROUNDS_MAX:
                break
            job.add(draw_plan(seed + number, missing))
    finally:
        broker.close()
    outcome.brokers = broker.starts
    return outcome


def faults(outcome: Outcome, kills: int) -> list[str]:
    """Why a soak whose rows are right has still proved less than it should."""
    found = []
    if outcome.kills.total() < kills:
        found.append(f"{outcome.kills.total()} kills have happened, {kills} were asked for")
    if outcome.brokers != outcome.kills["broker"] + 1:
        found.append(
            f"the broker was killed {outcome.kills['broker']} times and had {outcome.brokers} lives"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it from the command line; 0 if all kills have happened and every row is there once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from-topic", action="store_true", help="read a topic instead of files")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="millstream-soak-") as scratch:
        outcome = soak(
            Path(scratch) / "soak", options.kills, options.seed, is_from_topic=options.from_topic
        )
    kinds = ", ".join(f"{count} of a {kind}" for kind, count in outcome.kills.most_common())
    print(  # noqa: T201  # A command's result.
        f"{outcome.kills.total()} kills ({kinds}); {outcome.drivers} lives of the driver, "
        f"{outcome.brokers} of the broker; {outcome.rows} rows committed, each once, of "
        f"{outcome.written} written"
    )
    wrong = faults(outcome, options.kills)
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)  # noqa: T201  # Why the exit code is 1.
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
