"""How late heartbeats and lingering batches leave a client whose interpreter is busy.

The client talks to a broker through a relay in another process, which writes down when a request
arrives. Meanwhile the client's main thread spins in Python, or calls C code that keeps the
interpreter's lock for 50 ms at a time. Linux's perf_counter is one for all processes. Beside them a
process does nothing but sleep: how late it wakes up is how late the machine itself is. Part of
`benchmarks.clients`; relay, client and sleeper are this module too, in processes of their own.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.broker import wanted
from benchmarks.broker_processes import (
    HOST,
    SETTINGS,
    BrokerProcess,
    MillstreamLauncher,
    free_port,
)
from millstream.protocol.api import ApiKey

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

HEARTBEAT_SECONDS: Final = 0.1
LINGER_SECONDS: Final = 0.005
BUSY_SECONDS: Final = 0.05
SLEEP_SECONDS: Final = 0.02
TOPIC: Final = "punctual"
WAYS: Final = ("spin", "hold")
_WARM_UP_SECONDS: Final = 2.0


def measure(options: argparse.Namespace) -> Iterator[tuple[str, float, float]]:
    """The p99 of the lateness in microseconds, by row: the client's, and the machine's."""
    rounds = 40 if options.quick else 200
    for subject, key in (("heartbeat", ApiKey.HEARTBEAT), ("linger", ApiKey.PRODUCE)):
        for way in WAYS:
            name = f"late-{subject}-{way}_p99_us"
            if wanted(name, options.rows):
                ours, machine = _lateness(subject, int(key), way, rounds)
                yield name, _p99(ours) * 1e6, _p99(machine) * 1e6


def _p99(late: list[float]) -> float:
    return sorted(late)[int(len(late) * 0.99)]


def _lateness(subject: str, api_key: int, way: str, rounds: int) -> tuple[list[float], list[float]]:
    relay_port = free_port()
    advertised = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{HOST}:{relay_port}"}
    with (
        tempfile.TemporaryDirectory(prefix="millstream-late-") as scratch,
        BrokerProcess(MillstreamLauncher(advertised), Path(scratch)) as broker,
    ):
        broker.create_topic(TOPIC, 1)
        relay = _start("relay", relay_port, broker.port)
        client = _start("client", subject, way, f"{HOST}:{relay_port}", rounds)
        sleeper = _start("sleeper")
        told, _ = client.communicate()
        slept, _ = sleeper.communicate("")
        arrivals, _ = relay.communicate("")
        if client.returncode or relay.returncode or sleeper.returncode:
            sys.exit(f"late-{subject}-{way}: the client, the relay or the sleeper failed")
    seen = [at for key, at in json.loads(arrivals) if key == api_key]
    late = _late_by_cadence if subject == "heartbeat" else _late_by_sending
    return late(seen, json.loads(told)), json.loads(slept)


def _late_by_cadence(seen: list[float], told: dict[str, Any]) -> list[float]:
    """How much longer than the interval it took from one heartbeat to the next."""
    busy = [at for at in seen if told["began"] < at < told["ended"]]
    return [
        max(0.0, after - before - HEARTBEAT_SECONDS) for before, after in itertools.pairwise(busy)
    ]


def _late_by_sending(seen: list[float], told: dict[str, Any]) -> list[float]:
    """How much later than the linger time the first request after a send was seen."""
    late = []
    for sent in told["sent"]:
        after = [at for at in seen if at >= sent]
        if not after:
            sys.exit("late-linger: a record was never sent")
        late.append(max(0.0, after[0] - sent - LINGER_SECONDS))
    return late


def _start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


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
        group_id="punctual",
        group_protocol="classic",
        heartbeat_interval=HEARTBEAT_SECONDS,
        session_timeout=6.0,
    ) as consumer:
        consumer.subscribe([TOPIC])
        joined = time.perf_counter() + _WARM_UP_SECONDS
        while time.perf_counter() < joined or not consumer.assignment():
            consumer.poll(0.05)
        began = time.perf_counter()
        for _ in range(rounds):
            busy()
        return {"began": began, "ended": time.perf_counter()}


def linger(bootstrap: str, busy: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Send a record, then be busy; again and again."""
    from millstream import Producer

    with Producer(bootstrap, linger=LINGER_SECONDS) as producer:
        for _ in range(10):
            producer.send(TOPIC, b"warm up").result(timeout=10)
        sent = []
        for _ in range(rounds):
            sent.append(time.perf_counter())
            producer.send(TOPIC, b"x")
            busy()
        producer.flush()
    return {"sent": sent}


# The relay.


async def relay(port: int, broker_port: int) -> list[tuple[int, float]]:
    """Pass bytes on both ways; when each request arrived, by API key, until standard input ends."""
    arrivals: list[tuple[int, float]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, broker_port)
        back = asyncio.create_task(_copy(inner_reader, writer))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                arrivals.append((int.from_bytes(frame[:2], "big"), time.perf_counter()))
                inner_writer.write(size + frame)
        except (asyncio.IncompleteReadError, OSError):
            inner_writer.close()
            await back

    server = await asyncio.start_server(accept, HOST, port)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()
    return arrivals


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()
    except OSError:
        pass


# The sleeper.


def sleep() -> list[float]:
    """Sleep again and again until standard input ends; how late each awakening was."""
    late: list[float] = []
    while True:
        began = time.perf_counter()
        if select.select([sys.stdin], [], [], SLEEP_SECONDS)[0]:
            return late
        late.append(time.perf_counter() - began - SLEEP_SECONDS)


def main() -> None:
    """Be the relay, the sleeper or the client."""
    role, *arguments = sys.argv[1:]
    if role == "sleeper":
        print(json.dumps(sleep()))
        return
    if role == "relay":
        print(json.dumps(asyncio.run(relay(int(arguments[0]), int(arguments[1])))))
        return
    subject, way, bootstrap, rounds = arguments
    job = beat if subject == "heartbeat" else linger
    print(json.dumps(job(bootstrap, spin if way == "spin" else hold, int(rounds))))
