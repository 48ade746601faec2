"""What many partitions cost a log manager: start, first use, idle ticks, stop.

    python -m benchmarks.log_manager [--quick] [--json] [--partitions 10000]

The logs are made once by copying a template (creating ten thousand of them with their fsyncs is not
the question), then a fresh process opens them. Bars: start and use of all logs in under 5 s and
under 300 MB of resident memory. The last line is one JSON object; there is no peer.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.clock import SystemClock
from millstream.records.builder import RecordBatchBuilder
from millstream.storage.background import Background
from millstream.storage.checkpoint import (
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    write_offsets,
)
from millstream.storage.disk import DiskFile, DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.filesystem import FileStatus

_CLUSTER_ID = "benchmark"
_RECORDS = 3


class CountingFileSystem(DiskFileSystem):
    """Counts what would be system calls."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = {"open": 0, "read": 0, "scan": 0, "exists": 0, "sync_directory": 0}

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.counts["open"] += 1
        return super().open(path, create=create)

    def read_bytes(self, path: str) -> bytes:
        self.counts["read"] += 1
        return super().read_bytes(path)

    def scan(self, path: str) -> list[FileStatus]:
        self.counts["scan"] += 1
        return super().scan(path)

    def exists(self, path: str) -> bool:
        self.counts["exists"] += 1
        return super().exists(path)

    def sync_directory(self, path: str) -> None:
        self.counts["sync_directory"] += 1
        super().sync_directory(path)


def _manager(filesystem: DiskFileSystem, path: str, **settings: Any) -> LogManager:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    config = LogConfig()
    return LogManager(
        LogManagerConfig(log_dirs=(path,), **settings),
        cluster_id=_CLUSTER_ID,
        node_id=1,
        filesystem=filesystem,
        clock=SystemClock(),
        random=Random(1),
        background=Background(events.put, lambda _: ThreadPoolExecutor(2).submit),
        config_for=lambda _: config,
        on_directory_failure=lambda failure: sys.exit(str(failure)),
    )


def build(path: str, partitions: int) -> None:
    """A directory as a clean stop leaves it, with so many logs of three records each."""
    filesystem = DiskFileSystem()
    format_directory(filesystem, path, _CLUSTER_ID, 1, Random(1))
    manager = _manager(filesystem, path)
    manager.start()
    first = TopicPartition("t", 0)
    log = manager.get_or_create(first, Uuid(b"0123456789abcdef"), is_new=True)
    builder = RecordBatchBuilder()
    for _ in range(_RECORDS):
        builder.append(SystemClock().wall_ms(), b"key", b"value")
    log.append_as_leader(bytearray(builder.build()), 1, SystemClock().wall_ms())
    log.update_high_watermark(_RECORDS)
    manager.stop()
    everything = {TopicPartition("t", number): _RECORDS for number in range(partitions)}
    for partition in everything:
        if partition != first:
            shutil.copytree(f"{path}/{first}", f"{path}/{partition}")
    for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        write_offsets(filesystem, f"{path}/{name}", everything)


def measure(path: str) -> dict[str, Any]:
    """Start, use every log, be idle, stop."""
    filesystem = CountingFileSystem()
    memory_before = _resident_bytes()
    manager = _manager(filesystem, path, initial_task_delay_ms=0)
    report: dict[str, Any] = {}

    began, cpu_began = time.perf_counter(), time.process_time()
    manager.start()
    report["start s"] = time.perf_counter() - began
    report["start calls"] = dict(filesystem.counts)
    report["partitions"] = len(manager.partitions)
    for partition in manager.partitions:
        log = manager.get(partition)
        assert log is not None
        assert log.log_end_offset == _RECORDS
    report["start and open all s"] = time.perf_counter() - began
    report["of that CPU s"] = time.process_time() - cpu_began
    report["open calls per log"] = {
        name: round(count / report["partitions"], 2) for name, count in filesystem.counts.items()
    }
    report["resident MB"] = _resident_bytes() / 1e6
    report["resident MB of the logs"] = (_resident_bytes() - memory_before) / 1e6
    report["descriptors"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a Path each is slow

    began = time.perf_counter()
    slices = 0
    longest = 0.0
    while (manager.next_deadline_ms() or 0) <= SystemClock().monotonic_ms():
        one = time.perf_counter()
        manager.tick()
        longest = max(longest, time.perf_counter() - one)
        slices += 1
    report["first retention pass s"] = time.perf_counter() - began
    report["ticks"] = slices
    report["longest tick ms"] = longest * 1000
    report["descriptors after it"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as above

    began = time.perf_counter()
    assert manager.stop() == {}
    report["stop s"] = time.perf_counter() - began
    return report


def measure_dirty(path: str) -> dict[str, Any]:
    """Start after a crash: every log is recovered."""
    Path(path, ".kafka_cleanshutdown").unlink()
    manager = _manager(CountingFileSystem(), path)
    began = time.perf_counter()
    manager.start()
    report = {
        "recovery s": time.perf_counter() - began,
        "resident MB after recovery": _resident_bytes() / 1e6,
        "descriptors after recovery": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - as above
    }
    manager.abandon()
    return report


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def flattened(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Each figure by its name; counts of several kinds one by one."""
    for name, value in report.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {kind}", count) for kind, count in value.items())
        else:
            yield name, value


def main() -> None:
    """Build, then measure in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the partitions")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--measure", choices=["clean", "dirty"])
    parser.add_argument("--path")
    arguments = parser.parse_args()
    if arguments.measure:
        run = measure if arguments.measure == "clean" else measure_dirty
        json.dump(run(arguments.path), sys.stdout)
        sys.stdout.flush()
        os._exit(0)  # The executors' threads have nothing left to do.
    results: dict[str, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory() as base:
        path = f"{base}/logs"
        build(path, arguments.partitions // 10 if arguments.quick else arguments.partitions)
        for kind in ("clean", "dirty"):
            command = [sys.executable, "-m", "benchmarks.log_manager", "--measure", kind]
            done = subprocess.run(
                [*command, "--path", path], check=True, stdout=subprocess.PIPE, text=True
            )
            for name, value in flattened(json.loads(done.stdout)):
                results[name] = {"ours": round(value, 3), "peer": None, "ratio": None}
                if not arguments.json:
                    print(f"{name:28} {value:10.2f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
