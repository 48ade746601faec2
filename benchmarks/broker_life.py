"""What a broker costs before anybody uses it: start, memory, CPU time when nothing happens.

`benchmarks.broker` runs these after its rows of load. Each starts a process of its own.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import embedded
from benchmarks.broker_processes import BrokerProcess, MillstreamLauncher
from benchmarks.load import cpu_seconds

if TYPE_CHECKING:
    from benchmarks.broker_processes import Launcher

MANY_PARTITIONS = 1000
SETTLE_SECONDS = 11.0
"""Both write watermarks 5 s after a change; ours looks for more 5 s later, then no more."""
IDLE_SECONDS, QUICK_IDLE_SECONDS = 5.0, 2.0


def start_ms(launcher: Launcher) -> float:
    """From the start of the process to the first acknowledged record, its topic created on the way.

    Apache Kafka's directory is formatted before, which ours does while it starts.
    """
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch,
        BrokerProcess(launcher, Path(scratch, "broker")) as broker,
    ):
        broker.create_topic("first", 1)
        with broker.client() as client:
            error_code, _ = client.produce("first", bytes(100))
            assert error_code == 0
        return (time.perf_counter() - broker.started) * 1000


def embedded_start_ms() -> float:
    """From the call to the first acknowledged record, after the import, in a new process."""
    figures = embedded.measured_process()
    return figures["start to topic created"] + figures["first record acknowledged, raw socket"]


def memory_and_idle(launcher: Launcher, idle_seconds: float) -> dict[str, float]:
    """Memory with nothing, CPU time with nothing, and both with 1,000 partitions."""
    with (
        tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch,
        BrokerProcess(launcher, Path(scratch, "broker")) as broker,
    ):
        broker.client().__exit__()
        time.sleep(SETTLE_SECONDS)
        found = {"rss-idle_mb": broker.resident_bytes / 1e6}
        found["idle_cpu_us_per_second"] = _idle_cpu(broker, idle_seconds)
        broker.create_topic("many", MANY_PARTITIONS)
        time.sleep(SETTLE_SECONDS)
        found["rss-1000-partitions_mb"] = broker.resident_bytes / 1e6
        found["idle-1000-partitions_cpu_us_per_second"] = _idle_cpu(broker, idle_seconds)
    return found


def _idle_cpu(broker: BrokerProcess, seconds: float) -> float:
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)
    return (cpu_seconds(broker.pid) - before) / seconds * 1e6


def start_once_untimed() -> None:
    """Let Python write its bytecode, as an installation does."""
    start_ms(MillstreamLauncher())
