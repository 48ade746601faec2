"""How late heartbeats and lingering batches leave a client whose interpreter is busy.

The client talks to a broker through `clients_relay`, which learns from the kernel when a request
was sent. Meanwhile the client's main thread spins in Python, or calls C code that keeps the
interpreter's lock for 50 ms at a time. Beside them a process does nothing but sleep: how late it
wakes up is how late the machine itself is. What the host of a virtual machine disturbed is measured
again. Part of `benchmarks.clients`; client and sleeper are this module too, in their own processes.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import quiet
from benchmarks.broker import wanted
from benchmarks.broker_processes import (
    HOST,
    SETTINGS,
    BrokerProcess,
    MillstreamLauncher,
    free_port,
)
from benchmarks.clients_relay import now
from millstream.protocol.api import ApiKey

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

STEAL_MAX: Final = 0.03
"""A row that lost more than this share of the machine to its host does not count."""
HEARTBEAT_SECONDS: Final = 0.01
LINGERS_SECONDS: Final = (0.005, 0.013, 0.021, 0.029, 0.037)
"""Of one producer each: no two batches are due at the same moment, all while Python is busy."""
BUSY_SECONDS: Final = 0.05
TOPIC: Final = "punctual"
WAYS: Final = ("spin", "hold")
_ROUNDS: Final = 200
_QUICK_ROUNDS: Final = 20
_WARM_UP_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late something was, in microseconds."""

    count: int
    p99_us: float
    max_us: float

    @classmethod
    def of(cls, seconds: list[float]) -> Lateness:
        """From each time that it happened."""
        ordered = sorted(seconds)
        return cls(len(ordered), ordered[int(len(ordered) * 0.99)] * 1e6, ordered[-1] * 1e6)

    def __str__(self) -> str:
        return f"{self.p99_us:.0f} us, at most {self.max_us:.0f} us ({self.count} times)"


@dataclass(frozen=True, slots=True)
class Found:
    """What a row found: how late the client was, how late a process that only sleeps."""

    ours: Lateness
    sleeper: Lateness


def measure(options: argparse.Namespace) -> Iterator[tuple[str, quiet.Measured[Found]]]:
    """Each row's name and what was found."""
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    rows = {f"late-{subject}-{way}_p99_us": (subject, way) for subject in JOBS for way in WAYS}
    chosen = {name: row for name, row in rows.items() if wanted(name, options.rows)}
    if not chosen:
        return
    with relayed_broker() as (bootstrap, relay):
        for name, (subject, way) in chosen.items():
            row = Row(subject, way, bootstrap, rounds, relay)
            yield name, quiet.in_quiet(row.measure, steal_max=STEAL_MAX)


@contextmanager
def relayed_broker() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A broker that clients reach through a relay, and nowhere else."""
    port = free_port()
    advertised = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-late-"))
        broker = stack.enter_context(BrokerProcess(MillstreamLauncher(advertised), Path(scratch)))
        broker.create_topic(TOPIC, 1)
        relay = _start("benchmarks.clients_relay", port, broker.port)
        stack.callback(relay.communicate, "")
        yield f"{HOST}:{port}", relay


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be punctual, and how the client's main thread is busy."""

    subject: str
    way: str
    bootstrap: str
    rounds: int
    relay: subprocess.Popen[str]

    def measure(self) -> Found:
        """Once, with a new client."""
        client = _start(__name__, self.subject, self.way, self.bootstrap, self.rounds)
        sleeper = _start(__name__, "sleeper")
        told, _ = client.communicate()
        slept, _ = sleeper.communicate("")
        arrivals = _ask(self.relay)
        if client.returncode or sleeper.returncode:
            sys.exit(f"late-{self.subject}-{self.way}: the client or the sleeper failed")
        key, late_by = JUDGES[self.subject]
        seen: dict[str, list[float]] = {}
        for arrived, client_id, at in arrivals:
            if arrived == key:
                seen.setdefault(client_id, []).append(at)
        busy = json.loads(told)
        waking = late_by_cadence({"sleeper": json.loads(slept)}, busy)
        return Found(Lateness.of(late_by(seen, busy)), Lateness.of(waking))


def _start(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from {module} import main; main()", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(relay: subprocess.Popen[str]) -> list[tuple[int, str, float]]:
    assert relay.stdin is not None
    assert relay.stdout is not None
    relay.stdin.write("\n")
    relay.stdin.flush()
    answer: list[tuple[int, str, float]] = json.loads(relay.stdout.readline())
    return answer


# How late requests were, by the times at which they left.


def late_by_cadence(seen: dict[str, list[float]], told: dict[str, Any]) -> list[float]:
    """How much longer than the interval it took from one heartbeat to the next.

    One that was left out since the one before it was so late counts as well.
    """
    late = []
    for times in seen.values():
        busy = [at for at in times if told["began"] < at < told["ended"]]
        for before, after in itertools.pairwise(busy):
            delay = after - before - HEARTBEAT_SECONDS
            late.append(max(0.0, delay))
            while (delay := delay - HEARTBEAT_SECONDS) > 0:
                late.append(delay)
    return late


def late_by_sending(seen: dict[str, list[float]], told: dict[str, Any]) -> list[float]:
    """How much later than its producer lingers the first request after a send left."""
    late = []
    for client_id, linger, sent in told["sent"]:
        after = [at for at in seen[client_id] if at >= sent]
        if not after:
            sys.exit("late-linger: a record was never sent")
        late.append(max(0.0, after[0] - sent - linger))
    return late


JUDGES: Final = {
    "heartbeat": (int(ApiKey.HEARTBEAT), late_by_cadence),
    "linger": (int(ApiKey.PRODUCE), late_by_sending),
}


# The client.


def spin() -> None:
    """Python code that never waits."""
    until = time.perf_counter() + BUSY_SECONDS
    while time.perf_counter() < until:
        pass


def hold() -> None:
    """C code that keeps the interpreter's lock."""
    _C.usleep(int(BUSY_SECONDS * 1e6))


_C: Final = ctypes.PyDLL(None)


def beat(bootstrap: str, busy: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Be a member of a group, and busy."""
    from millstream import Consumer

    with Consumer(
        bootstrap,
        client_id="late",
        group_id="punctual",
        group_protocol="classic",
        heartbeat_interval=HEARTBEAT_SECONDS,
        session_timeout=6.0,
    ) as consumer:
        consumer.subscribe([TOPIC])
        joined = now() + _WARM_UP_SECONDS
        while now() < joined or not consumer.assignment():
            consumer.poll(0.05)
        began = now()
        for _ in range(rounds):
            busy()
        return {"began": began, "ended": now()}


def linger(bootstrap: str, busy: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Send a record with each of several producers, then be busy; again and again."""
    from millstream import Producer

    with ExitStack() as stack:
        lingers = {f"late-{seconds}": seconds for seconds in LINGERS_SECONDS}
        producers = {
            name: stack.enter_context(Producer(bootstrap, client_id=name, linger=seconds))
            for name, seconds in lingers.items()
        }
        for producer in producers.values():
            for _ in range(10):
                producer.send(TOPIC, b"warm up").result(timeout=10)
        began = now()
        sent = []
        for _ in range(rounds):
            for name, producer in producers.items():
                sent.append((name, lingers[name], now()))
                producer.send(TOPIC, b"x")
            busy()
        ended = now()
    return {"began": began, "ended": ended, "sent": sent}


JOBS: Final = {"heartbeat": beat, "linger": linger}


# The sleeper.


def sleep() -> list[float]:
    """Wake up at regular times, as heartbeats leave, until standard input ends; when it did."""
    awake: list[float] = []
    due = now()
    while True:
        # What was missed is not made up for: a heartbeat's order does not, either.
        missed = max(0, int((now() - due) / HEARTBEAT_SECONDS))
        due += (missed + 1) * HEARTBEAT_SECONDS
        if select.select([sys.stdin], [], [], max(0.0, due - now()))[0]:
            return awake
        awake.append(now())


def main() -> None:
    """Be the sleeper or the client."""
    role, *arguments = sys.argv[1:]
    if role == "sleeper":
        print(json.dumps(sleep()))
        return
    way, bootstrap, rounds = arguments
    print(json.dumps(JOBS[role](bootstrap, spin if way == "spin" else hold, int(rounds))))
