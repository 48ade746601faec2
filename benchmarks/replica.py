"""What does the replica layer cost? Appends and fetches through `ReplicaManager`, beside the log's.

    python -m benchmarks.replica [--quick] [--json] [--profile]

CPU microseconds per call, both sides interleaved, best of several rounds, on files in memory where
the system has a place for them: the question is the processor, not the disk. The peer of an append
and a fetch is the log alone; of a fetch that waits, one that finds its record; of a session with
many partitions, one with ten. The last line is one JSON object. `--profile` adds where an append
and a fetch spend their time.
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
from millstream.replica.fetch_partition import FetchPartition
from millstream.replica.fetch_service import FetchParams
from millstream.replica.replica_manager import ReplicaManager
from millstream.storage.background import Background
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.replica.fetch_session import FetchContext
    from millstream.replica.isr import IsrProposal
    from millstream.replica.ports import IsrAnswered
    from millstream.storage.log.unified_log import UnifiedLog

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


class Case(NamedTuple):
    """A call, and what it is compared with."""

    ours: Callable[[], object]
    peer: Callable[[], object]


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


def append_case(bench: Bench, size: int, index: int) -> Case:
    """The same append through the manager, and to the log itself."""
    records, log = batch(size), bench.log(index)
    entries = [("bench", index, records)]
    clock, manager = SystemClock(), bench.manager

    def alone() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        return log.append_as_leader(records, 0, clock.wall_ms())

    def managed() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        return manager.append(entries, -1, 1000, print)

    return Case(managed, alone)


def fetch_case(bench: Bench, index: int) -> Case:
    """64 KiB through the manager, and from the log itself."""
    records = batch(16 << 10)
    for _ in range(16):
        _BASE_OFFSET.pack_into(records, 0, 0)
        bench.manager.append([("bench", index, records)], 1, 1000, print)
    log, manager = bench.log(index), bench.manager

    def alone() -> object:
        return log.read(5, 64 << 10, FetchIsolation.HIGH_WATERMARK)

    def managed() -> object:
        context = manager.fetch_sessions.open(
            0, -1, [FetchPartition("bench", index, 5, 64 << 10)], now_ms=0
        )
        return manager.fetch(context, FetchParams(500, 1, 1 << 20), print)

    return Case(managed, alone)


def session_case(bench: Bench, few: range, many: range) -> Case:
    """An incremental fetch of quiet partitions, one of which has a record each time."""
    return Case(_incremental(bench, many), _incremental(bench, few))


def _incremental(bench: Bench, partitions: range) -> Callable[[], object]:
    manager, first = bench.manager, partitions[0]
    params = FetchParams(0, 1, 1 << 20)
    asked = [FetchPartition("bench", index, 0, 1 << 20) for index in partitions]
    answer = manager.fetch(manager.fetch_sessions.open(0, 0, asked, now_ms=0), params, print)
    assert answer is not None
    session_id = answer.session_id
    records, state = batch(100), [1]

    def incremental() -> object:
        _BASE_OFFSET.pack_into(records, 0, 0)
        manager.append([("bench", first, records)], 1, 1000, print)
        log_end = bench.log(first).log_end_offset
        context = manager.fetch_sessions.open(
            session_id, state[0], [FetchPartition("bench", first, log_end - 1, 1 << 20)], now_ms=0
        )
        state[0] += 1
        return manager.fetch(context, params, print)

    return incremental


def wake_case(bench: Bench, index: int) -> Case:
    """A fetch that waits, the append it waits for, and its answer; beside it append, then fetch."""
    manager = bench.manager
    params = FetchParams(500, 1, 1 << 20)
    records = batch(100)

    def open_at_end() -> FetchContext:
        asked = FetchPartition("bench", index, bench.log(index).log_end_offset, 1 << 20)
        return manager.fetch_sessions.open(0, -1, [asked], now_ms=0)

    def append() -> None:
        _BASE_OFFSET.pack_into(records, 0, 0)
        manager.append([("bench", index, records)], 1, 1000, print)

    def woken() -> object:
        answers: list[object] = []
        manager.fetch(open_at_end(), params, answers.append)
        append()
        bench.settle()
        assert answers
        return answers

    def found() -> object:
        context = open_at_end()
        append()
        answer = manager.fetch(context, params, print)
        bench.settle()
        assert answer is not None
        return answer

    return Case(woken, found)


def measure(case: Case, rounds: int, calls: int) -> dict[str, float]:
    """CPU microseconds per call; the sides take turns, so that both see the same machine."""
    ours = peer = float("inf")
    for _ in range(rounds):
        ours = min(ours, _time(case.ours, calls))
        peer = min(peer, _time(case.peer, calls))
    return {"ours": round(ours, 2), "peer": round(peer, 2), "ratio": round(peer / ours, 2)}


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
    results: dict[str, dict[str, float]] = {}
    in_memory = MEMORY_DIRECTORY if Path(MEMORY_DIRECTORY).is_dir() else None
    with tempfile.TemporaryDirectory(dir=in_memory) as path:
        bench = make(str(Path(path) / "logs"))
        cases = {
            "append_100": append_case(bench, 100, 0),
            "append_16k": append_case(bench, 16 << 10, 1),
            "fetch_64k": fetch_case(bench, 2),
            "fetch_waits_append_wakes": wake_case(bench, 3),
            "session_980_one_changed": session_case(bench, range(10, 20), range(20, PARTITIONS)),
        }
        for name, case in cases.items():
            results[name] = row = measure(case, rounds, calls)
            if not arguments.json:
                print(f"{name:34} {row['ours']:9.2f} us   peer {row['peer']:9.2f} us")
        if arguments.profile:
            profile(cases["append_100"].ours)
            profile(cases["fetch_64k"].ours)
        bench.store.abandon()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
