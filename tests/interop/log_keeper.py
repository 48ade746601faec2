"""Our own storage as a broker uses it: a log manager and a cleaner on real directories."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from millstream.clock import ManualClock
from millstream.records import Compression, ControlType, EndTxnMarker, RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import control_type, end_txn_marker
from millstream.storage.background import Background
from millstream.storage.cleaner.cleaner import LogCleaner
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.config import LogConfig
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.manager.broker_config import CleanerConfig, LogManagerConfig
from millstream.storage.manager.log_directory import format_directory
from millstream.storage.manager.log_manager import LogManager
from millstream.types import TopicPartition
from tests.interop.kafka_broker import CLUSTER_ID, NODE_ID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.storage.cleaner.cleaning_ports import CleaningStats
    from millstream.storage.log.unified_log import UnifiedLog

BACKOFF_MS = 15_000


class Row(NamedTuple):
    """One record, as both sides know it."""

    offset: int
    key: bytes | None
    value: bytes | None


class LogKeeper:
    """One life of a log manager with its cleaner; background work waits for `settle`."""

    def __init__(
        self, directory: Path, configs: dict[str, LogConfig], now_ms: int = 1_800_000_000_000
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.cleaned: list[CleaningStats] = []
        self._events: deque[Callable[[], None]] = deque()
        filesystem = DiskFileSystem()
        self.manager = LogManager(
            LogManagerConfig(log_dirs=(str(directory),)),
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            filesystem=filesystem,
            clock=self.clock,
            random=Random(1),
            background=Background(
                self._events.append, lambda _: self._events.append, ThreadPoolExecutor
            ),
            config_for=lambda topic: configs.get(topic, LogConfig()),
            on_directory_failure=_fail,
        )
        self.manager.start()
        self.cleaner = LogCleaner(
            self.manager,
            CleanerConfig(backoff_ms=BACKOFF_MS),
            filesystem=filesystem,
            clock=self.clock,
            run=self._events.append,
            post=self._events.append,
            on_cleaned=self.cleaned.append,
        )
        self.manager.cleaner = self.cleaner

    def log(self, topic: str) -> UnifiedLog:
        """The log of the topic's only partition."""
        return self.manager.get_or_create(TopicPartition(topic, 0), is_new=True)

    def settle(self) -> None:
        """Let all background work happen."""
        while self._events:
            self._events.popleft()()

    def clean(self) -> None:
        """Compact everything there is to compact."""
        while True:
            deadline_ms = self.cleaner.next_deadline_ms()
            assert deadline_ms is not None
            wait_ms = deadline_ms - self.clock.monotonic_ms()
            if wait_ms >= BACKOFF_MS:
                return
            self.clock.advance(max(wait_ms, 0))
            self.cleaner.tick()
            self.settle()
            assert not self.cleaner.uncleanable

    def stop(self) -> None:
        """Leave the directories clean."""
        self.cleaner.close()
        self.settle()
        assert self.manager.stop() == {}


def _fail(failure: object) -> None:
    raise AssertionError(failure)


def format_for_us(directory: Path) -> None:
    """Take a fresh directory."""
    format_directory(DiskFileSystem(), str(directory), CLUSTER_ID, NODE_ID, Random(1))


class Writer:
    """Appends rows to a log, as clients and coordinators would have it."""

    def __init__(self, log: UnifiedLog, clock: ManualClock, epoch: int | None = None) -> None:
        self.log = log
        self.clock = clock
        self.epoch = max(log.epochs.latest_epoch, 0) if epoch is None else epoch

    def append(
        self,
        rows: list[tuple[bytes | None, bytes | None]],
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        *,
        is_transactional: bool = False,
    ) -> None:
        """One batch."""
        self.clock.advance(1)
        builder = RecordBatchBuilder()
        for key, value in rows:
            builder.append(self.clock.wall_ms(), key, value, [("h", b"x")])
        epoch, sequence = -1, -1
        if producer_id >= 0:
            entry = self.log.producers.producers.get(producer_id)
            epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)
        data = builder.build(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        origin = AppendOrigin.COORDINATOR if is_transactional else AppendOrigin.CLIENT
        self._append(data, origin)

    def end(self, producer_id: int, kind: ControlType) -> None:
        """The end of a producer's transaction."""
        entry = self.log.producers.producers[producer_id]
        data = end_txn_marker(
            EndTxnMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=entry.epoch + 1,
            timestamp=self.clock.wall_ms(),
        )
        self._append(data, AppendOrigin.COORDINATOR)

    def _append(self, data: bytes, origin: AppendOrigin) -> None:
        self.log.append_as_leader(data, self.epoch, self.clock.wall_ms(), origin=origin)
        self.log.raise_high_watermark(self.log.log_end_offset)


def batches_of(log: UnifiedLog) -> list[RecordBatch]:
    """Every batch, in order."""
    return [
        batch
        for segment in log.segments
        for _, batch in segment.batches()
        if isinstance(batch, RecordBatch)
    ]


def committed_rows(log: UnifiedLog) -> list[Row]:
    """What a read_committed consumer gets of a whole log."""
    rows: list[Row] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        fetched = log.read(offset, 50_000, FetchIsolation.TXN_COMMITTED)
        if fetched.records is None or fetched.aborted_transactions is None:
            break
        pending = sorted(fetched.aborted_transactions, key=lambda each: each.first_offset)
        aborting: set[int] = set()
        data = fetched.records.read()
        position = 0
        while position < len(data):
            batch = RecordBatch(data, position)
            if position + batch.size > len(data):
                break
            batch.check_crc()
            position += batch.size
            offset = batch.next_offset
            while pending and pending[0].first_offset <= batch.last_offset:
                aborting.add(pending.pop(0).producer_id)
            records = batch.records()
            if batch.is_control:
                if records and control_type(records[0]) is ControlType.ABORT:
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                rows += [Row(each.offset, each.key, each.value) for each in records]
    return rows
