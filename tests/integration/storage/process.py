"""A process that uses a log manager as a broker would: one thread owns it, a queue wakes it.

Run as `python -m tests.integration.storage.process DIRECTORY ...` it appends for ever to a few
partitions with acknowledgements from disk, and prints `partition offset` for each one it got.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

from millstream.clock import SystemClock
from millstream.records.builder import RecordBatchBuilder
from millstream.storage.background import Background
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_registry import DirectoryFailure

CLUSTER_ID = "cluster-of-tests"
TOPIC = "ledger"
PARTITIONS = 5
CONFIG = LogConfig(
    durability="disk",
    internal_segment_bytes=32_000,
    segment_index_bytes=4_000,
    file_delete_delay_ms=1,
)


class Process:
    """The owner of a log manager: a queue of things to do, and a clock."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.clock = SystemClock()
        self.failures: list[DirectoryFailure] = []
        filesystem = DiskFileSystem()
        for path in paths:
            if not filesystem.exists(f"{path}/meta.properties"):
                format_directory(filesystem, path, CLUSTER_ID, 1, Random())
        config = LogManagerConfig(
            log_dirs=paths,
            initial_task_delay_ms=10,
            flush_offset_checkpoint_interval_ms=50,
            flush_start_offset_checkpoint_interval_ms=50,
            high_watermark_checkpoint_interval_ms=50,
        )
        self.manager = LogManager(
            config,
            cluster_id=CLUSTER_ID,
            node_id=1,
            filesystem=filesystem,
            clock=self.clock,
            random=Random(),
            background=Background(self.queue.put, lambda _: ThreadPoolExecutor(2).submit),
            config_for=lambda _: CONFIG,
            on_directory_failure=self.failures.append,
        )

    def turn(self) -> None:
        """Wait for the next thing to do, or for the next deadline."""
        deadline_ms = self.manager.next_deadline_ms()
        wait_ms = None if deadline_ms is None else deadline_ms - self.clock.monotonic_ms()
        try:
            work = self.queue.get(timeout=None if wait_ms is None else max(wait_ms, 0) / 1000)
        except queue.Empty:
            self.manager.tick()
        else:
            work()


def record_value(partition: int, offset: int) -> bytes:
    """What the record of an offset contains: nothing else may ever be read there."""
    return b"%d/%d/" % (partition, offset) + bytes(Random(offset).randrange(400))


def append_one(process: Process, log: UnifiedLog, partition: int, random: Random) -> int:
    """Append a batch of a few records that know their offsets; the offset after them."""
    builder = RecordBatchBuilder()
    now_ms = process.clock.wall_ms()
    for number in range(random.randint(1, 3)):
        builder.append(now_ms, None, record_value(partition, log.log_end_offset + number))
    log.append_as_leader(bytearray(builder.build()), 1, now_ms)
    log.update_high_watermark(log.log_end_offset)
    return log.log_end_offset


def _append_for_ever(process: Process) -> None:
    """Keep one append of each partition in flight, each begun by the last one's acknowledgement."""
    manager, random = process.manager, Random(os.getpid())
    process.manager.start()

    def go_on(partition: int) -> None:
        log = manager.get_or_create(TopicPartition(TOPIC, partition), is_new=True)
        end_offset = append_one(process, log, partition, random)

        def done(error: ApiError | None) -> None:
            if error is not None:
                raise error
            sys.stdout.write(f"{partition} {end_offset - 1}\n")
            sys.stdout.flush()
            go_on(partition)

        manager.commit(log, end_offset, done)

    for partition in range(PARTITIONS):
        go_on(partition)
    while True:
        process.turn()


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(description=__doc__)
    _parser.add_argument("directories", nargs="+")
    _append_for_ever(Process(tuple(_parser.parse_args().directories)))
