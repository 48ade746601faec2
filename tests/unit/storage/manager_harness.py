"""A log manager on one thread: background work waits in a list until the test lets it run."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.clock import ManualClock
from millstream.storage.background import Background
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.types import TopicPartition, Uuid
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_recovery import RecoveryProgress
    from millstream.storage.manager.log_registry import DirectoryFailure

CLUSTER_ID = "cluster-of-tests"
NODE_ID = 1
TOPIC_ID = Uuid(b"a topic id of 16")
ORDERS = TopicPartition("orders", 0)


class InlineExecutor(Executor):
    """Does everything at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Broker:
    """As much of a broker as a log manager sees, from one start to the next."""

    def __init__(
        self,
        filesystem: FileSystem,
        paths: tuple[str, ...],
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        self.filesystem = filesystem
        self.paths = paths
        self.clock = clock or ManualClock(NOW_MS)
        self.random = Random(7)
        self.events: deque[Callable[[], None]] = deque()
        self.failures: list[DirectoryFailure] = []
        self.progress: list[RecoveryProgress] = []
        self.configs: dict[str, LogConfig] = {}
        self.defaults = LogConfig(
            internal_segment_bytes=500, segment_index_bytes=1_000, file_delete_delay_ms=1_000
        )
        self.deadlines_brought_forward = 0
        self.manager = LogManager(
            replace(LogManagerConfig(log_dirs=paths), **settings),
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            filesystem=filesystem,
            clock=self.clock,
            random=self.random,
            background=Background(
                self.events.append, lambda _: self.events.append, lambda _: InlineExecutor()
            ),
            config_for=lambda topic: self.configs.get(topic, self.defaults),
            on_directory_failure=self.failures.append,
            on_progress=self.progress.append,
            on_deadline=self._count_deadline,
        )

    def _count_deadline(self) -> None:
        self.deadlines_brought_forward += 1

    def format(self) -> Broker:
        """Take the directories."""
        for path in self.paths:
            format_directory(self.filesystem, path, CLUSTER_ID, NODE_ID, self.random)
        return self

    def start(self) -> LogManager:
        """The manager, in service."""
        self.manager.start()
        return self.manager

    def settle(self) -> None:
        """Let all background work happen."""
        while self.events:
            self.events.popleft()()

    def pass_time(self, ms: int) -> None:
        """Let time pass and everything that becomes due happen."""
        self.clock.advance(ms)
        while True:
            due_ms = self.manager.next_deadline_ms()
            if due_ms is None or due_ms > self.clock.monotonic_ms():
                break
            self.manager.tick()
            self.settle()
        self.settle()

    def commit(self, log: UnifiedLog) -> list[ApiError | None]:
        """Ask for the disk to have everything; the answer arrives in the list."""
        answers: list[ApiError | None] = []
        self.manager.commit(log, log.log_end_offset, answers.append)
        return answers


def restarted(broker: Broker, filesystem: FileSystem | None = None) -> Broker:
    """The next process on the same directories; not started yet."""
    fresh = Broker(filesystem or broker.filesystem, broker.paths, broker.clock)
    fresh.configs, fresh.defaults = broker.configs, broker.defaults
    fresh.random = Random(8)
    return fresh


def append(log: UnifiedLog, count: int = 1, now_ms: int = NOW_MS) -> int:
    """Append batches of one record; the offset after the last."""
    for _ in range(count):
        data = bytearray(batch_bytes(0, timestamps=[now_ms]))
        log.append_as_leader(data, 1, now_ms)
    log.update_high_watermark(log.log_end_offset)
    return log.log_end_offset


def names_in(filesystem: FileSystem, path: str) -> set[str]:
    """What is in a directory."""
    return {status.name for status in filesystem.scan(path)}
