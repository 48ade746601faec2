"""What does the replica layer cost? Appends and fetches through `ReplicaManager`, beside the log's.

`python -m benchmarks.replica [--quick] [--json] [--profile]`: CPU microseconds per call, both sides
in turns, best of several rounds, on files in memory where the system has a place for them: the
question is the processor, not the disk. The last line is one JSON object: name to microseconds.
`--profile` adds where an append and a fetch spend their time.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from millstream.clock import SystemClock
from millstream.metadata.cache import KRaftMetadataCache
from millstream.metadata.delta import MetadataDelta
from millstream.metadata.image import MetadataProvenance
from millstream.protocol.messages.topic_records import PartitionRecord, TopicRecord
from millstream.records.builder import RecordBatchBuilder
from millstream.replica.config import ReplicaConfig
from millstream.replica.fetch_service import FetchParams
from millstream.replica.fetch_target import FetchTarget
from millstream.replica.replica_manager import ReplicaManager
from millstream.storage.background import Background
from millstream.storage.broker_config import LogManagerConfig
from millstream.storage.config import LogConfig
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log_directory import format_directory
from millstream.storage.log_manager import LogManager
from millstream.storage.log_results import FetchIsolation
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.replica.isr import IsrProposal
    from millstream.replica.ports import IsrAnswered
    from millstream.storage.unified_log import UnifiedLog

TOPIC_ID = Uuid(bytes(range(16)))
PARTITIONS = 1000
MEMORY_DIRECTORY = "/dev/shm"
ROUNDS, QUICK_ROUNDS = 15, 5
CALLS, QUICK_CALLS = 1000, 300
_BASE_OFFSET = Struct(">q")


class NoController:
    """Nobody is asked: there is one replica of everything."""

    def submit(self, proposal: IsrProposal, done: IsrAnswered) -> None:
        """Never called."""
        raise NotImplementedError


class Bench(NamedTuple):
    """One broker's replicas on a real disk."""

    manager: ReplicaManager
    store: LogManager
    deferred: list[Callable[[], None]]

    def log(self, index: int) -> UnifiedLog:
        """The log of a partition."""
        found = self.store.get(TopicPartition("bench", index))
        assert found is not None
        return found

    def settle(self) -> None:
        """Do what the loop would do next."""
        for call in self.deferred:
            call()
        self.deferred.clear()


def make(path: str) -> Bench:
    """A broker with one topic."""
    clock, filesystem, random = SystemClock(), DiskFileSystem(), Random(1)
    deferred: list[Callable[[], None]] = []
    format_directory(filesystem, path, "bench", 1, random)
    pool = ThreadPoolExecutor(1)
    store = LogManager(
        LogManagerConfig(log_dirs=(path,)),
        cluster_id="bench",
        node_id=1,
        filesystem=filesystem,
        clock=clock,
        random=random,
        background=Background(deferred.append, lambda _: pool.submit),
        config_for=lambda _: LogConfig(),
        on_directory_failure=print,
    )
    store.start()
    cache = KRaftMetadataCache()
    manager = ReplicaManager(
        ReplicaConfig(),
        broker_id=1,
        store=store,
        cache=cache,
        clock=clock,
        random=random,
        defer=deferred.append,
        arm=lambda _: None,
        alterer=NoController(),
    )
    delta = MetadataDelta(cache.image)
    delta.replay(TopicRecord(name="bench", topic_id=TOPIC_ID))
    for index in range(PARTITIONS):
        delta.replay(
            PartitionRecord(
                partition_id=index,
                topic_id=TOPIC_ID,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    cache.image = delta.apply(MetadataProvenance())
    manager.apply(delta.topics, cache.image.topics)
    return Bench(manager, store, deferred)


def batch(size: int) -> bytearray:
    """A batch of one record, of about a size."""
    builder = RecordBatchBuilder()
    builder.append(SystemClock().wall_ms(), None, bytes(max(size - 70, 1)))
    return bytearray(builder.build())


def append_cases(bench: Bench, size: int, index: int) -> dict[str, Callable[[], object]]:
    """The same append to the log itself, and through the manager."""
    records, log = batch(size), bench.log(index)
    entries = [("bench", index, records)]
    clock, manager = SystemClock(), bench.manager

    def alone() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        return log.append_as_leader(records, 0, clock.wall_ms())

    def managed() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        return manager.append(entries, -1, 1000, print)

    return {f"append_{size}_log": alone, f"append_{size}_manager": managed}


def fetch_cases(bench: Bench, index: int) -> dict[str, Callable[[], object]]:
    """64 KiB from the log itself, through the manager, and with a session."""
    records = batch(16 << 10)
    for _ in range(16):
        _BASE_OFFSET.pack_into(records, 0, 0)
        bench.manager.append([("bench", index, records)], 1, 1000, print)
    log, manager = bench.log(index), bench.manager

    def alone() -> object:
        return log.read(5, 64 << 10, FetchIsolation.HIGH_WATERMARK)

    def managed() -> object:
        context = manager.fetch_sessions.open(
            0, -1, [FetchTarget("bench", index, 5, 64 << 10)], now_ms=0
        )
        return manager.fetch(context, FetchParams(500, 1, 1 << 20), print)

    return {"fetch_64k_log": alone, "fetch_64k_manager": managed}


def session_case(bench: Bench, first: int) -> dict[str, Callable[[], object]]:
    """An incremental fetch of many quiet partitions, one of which has a record each time."""
    manager = bench.manager
    params = FetchParams(0, 1, 1 << 20)
    targets = [FetchTarget("bench", index, 0, 1 << 20) for index in range(first, PARTITIONS)]
    answer = manager.fetch(manager.fetch_sessions.open(0, 0, targets, now_ms=0), params, print)
    assert answer is not None
    session_id = answer.session_id
    records, state = batch(100), [1]

    def incremental() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        manager.append([("bench", first, records)], 1, 1000, print)
        log_end = bench.log(first).log_end_offset
        context = manager.fetch_sessions.open(
            session_id, state[0], [FetchTarget("bench", first, log_end - 1, 1 << 20)], now_ms=0
        )
        state[0] += 1
        return manager.fetch(context, params, print)

    return {f"session_{len(targets)}_one_changed": incremental}


def wake_case(bench: Bench, index: int) -> dict[str, Callable[[], object]]:
    """A fetch that waits, the append it waits for, and its answer."""
    manager = bench.manager
    params = FetchParams(500, 1, 1 << 20)
    records = batch(100)

    def round_trip() -> object:
        end = bench.log(index).log_end_offset
        context = manager.fetch_sessions.open(
            0, -1, [FetchTarget("bench", index, end, 1 << 20)], now_ms=0
        )
        answers: list[object] = []
        manager.fetch(context, params, answers.append)
        _BASE_OFFSET.pack_into(records, 0, 0)
        manager.append([("bench", index, records)], 1, 1000, print)
        bench.settle()
        assert answers
        return answers

    return {"fetch_waits_append_wakes": round_trip}


def measure(cases: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, float]:
    """CPU microseconds per call; the sides take turns, so that both see the same machine."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, function in cases.items():
            best[name] = min(best[name], _time(function, calls))
    return best


def _time(function: Callable[[], object], calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        function()
    return (time.process_time_ns() - start) / calls / 1e3


def profile(function: Callable[[], object]) -> None:
    """Where the time goes, by function."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(5000):
        function()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replica", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    parser.add_argument("--profile", action="store_true", help="where an append spends its time")
    arguments = parser.parse_args()
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    calls = QUICK_CALLS if arguments.quick else CALLS
    results: dict[str, float] = {}
    in_memory = MEMORY_DIRECTORY if Path(MEMORY_DIRECTORY).is_dir() else None
    with tempfile.TemporaryDirectory(dir=in_memory) as path:
        bench = make(str(Path(path) / "logs"))
        groups = [
            append_cases(bench, 100, 0),
            append_cases(bench, 16 << 10, 1),
            fetch_cases(bench, 2),
            wake_case(bench, 3),
            session_case(bench, 10),
        ]
        for cases in groups:
            results |= measure(cases, rounds, calls)
        if arguments.profile:
            profile(groups[0]["append_100_manager"])
            profile(groups[2]["fetch_64k_manager"])
        bench.store.abandon()
    if not arguments.json:
        for name, microseconds in results.items():
            print(f"{name:34} {microseconds:9.2f} us")
    print(json.dumps({name: round(value, 2) for name, value in results.items()}))


if __name__ == "__main__":
    main()
