"""One compacted log with its cleaner on a simulated disk, through crashes and restarts.

It stands in for the log manager. The cleaner's work waits in a list of events, so that a story can
put anything between two steps of a pass.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.records import Compression, ControlType, EndTxnMarker
from millstream.records.batch import RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import end_txn_marker
from millstream.storage.checkpoint import CLEANER_FILE, read_offsets, write_offsets
from millstream.storage.cleaner.cleaner import LogCleaner
from millstream.storage.cleaner.cleaning_plan import plan_cleaning
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.manager.broker_config import CleanerConfig
from tests.simulation.storage.cleaner_checks import CompactionHistory, PassBegun, check_compacted
from tests.simulation.storage.harness import PARTITION, ROOT, LogHarness
from tests.simulation.storage.model import ModelBatch, ModelLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.storage.cleaner.cleaning_ports import CleaningStats
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.types import TopicPartition

TRANSACTIONAL_PRODUCERS = (101, 102)
IDEMPOTENT_PRODUCERS = (1, 2)
LEADER_EPOCH = 3
STEPS_MAX = 10_000


def small_map(entry_count: int) -> CleanerConfig:
    """Settings with room for a few keys only: far less than a user may set."""
    config = CleanerConfig(io_buffer_size=4096)
    object.__setattr__(config, "dedupe_buffer_size", entry_count * 24)
    return config


class CleanerWorld:
    """The log, its cleaner, and what both should be like."""

    def __init__(self, random: Random, config: LogConfig, cleaner_config: CleanerConfig) -> None:
        self.random = random
        self.harness = LogHarness(random, config)
        self.model = ModelLog()
        self.history = CompactionHistory(config.delete_retention_ms)
        self.cleaned: list[CleaningStats] = []
        self.offset: int | None = None
        self.flushes_at_roll = True
        """Whether closed segments are brought to disk, as a broker does it."""
        self._cleaner_config = cleaner_config
        self._value_count = 0
        self._begin_life()

    def _begin_life(self) -> None:
        self.events: deque[Callable[[], None]] = deque()
        self.discarded: list[LogSegment] = []
        self.offset = read_offsets(self.harness.filesystem, f"{ROOT}/{CLEANER_FILE}").get(PARTITION)
        self.cleaner = LogCleaner(
            self,
            self._cleaner_config,
            filesystem=self.harness.filesystem,
            clock=self.harness.clock,
            run=self.events.append,
            post=self.events.append,
            on_cleaned=self._note_cleaned,
        )

    @property
    def log(self) -> UnifiedLog:
        """The log in its present life."""
        return self.harness.log

    def reseed_disk(self, seed: int) -> None:
        """Let the disk fail in another way."""
        self.harness.filesystem._random = Random(seed)

    def change_config(self, **settings: Any) -> None:
        """The topic has new settings."""
        self.harness.config = replace(self.harness.config, **settings)
        self.log.update_config(self.harness.config)

    # What the cleaner asks of a manager.

    def compacted_logs(self) -> list[TopicPartition]:
        return [PARTITION]

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        assert partition == PARTITION
        return self.log

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        assert partition == PARTITION
        return self.offset

    def set_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        assert partition == PARTITION
        self.offset = offset
        if self.random.random() < 0.7:
            self.write_cleaner_offset()

    def write_cleaner_offset(self) -> None:
        """Bring the first dirty offset to disk."""
        if self.offset is not None:
            path = f"{ROOT}/{CLEANER_FILE}"
            write_offsets(self.harness.filesystem, path, {PARTITION: self.offset})

    def discard_segments(self, log: UnifiedLog, segments: Iterable[LogSegment]) -> None:
        assert log is self.log
        self.discarded += segments

    def note_error(self, log: UnifiedLog, error: Exception) -> bool:
        raise AssertionError(f"{log.directory}: {error}") from error

    def _note_cleaned(self, stats: CleaningStats) -> None:
        self.cleaned.append(stats)
        self.history.clean_end = max(self.history.clean_end, stats.end_offset)

    # What users do.

    def append(self, rows: list[tuple[bytes, bytes | None]], producer_id: int = -1) -> None:
        """One batch of keys and values; a transactional producer's is part of a transaction."""
        now_ms = self.harness.clock.wall_ms()
        builder = RecordBatchBuilder()
        for key, value in rows:
            self._value_count += 1
            numbered = None if value is None else b"%d-%s" % (self._value_count, value)
            builder.append(now_ms - self.random.randrange(3), key, numbered)
        epoch, sequence = -1, -1
        if producer_id >= 0:
            entry = self.log.producers.producers.get(producer_id)
            epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)
        data = builder.build(
            compression=self.random.choice([Compression.NONE, Compression.NONE, *Compression]),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer_id in TRANSACTIONAL_PRODUCERS,
        )
        self._append(data, AppendOrigin.CLIENT)

    def end_transaction(self, producer_id: int, *, is_abort: bool) -> None:
        """A marker, if there is something to end."""
        entry = self.log.producers.producers.get(producer_id)
        if entry is None or entry.transaction_first_offset is None:
            return
        kind = ControlType.ABORT if is_abort else ControlType.COMMIT
        data = end_txn_marker(
            EndTxnMarker(kind, 1),
            producer_id=producer_id,
            producer_epoch=entry.epoch + 1,
            timestamp=self.harness.clock.wall_ms(),
        )
        self._append(data, AppendOrigin.COORDINATOR)

    def _append(self, data: bytes, origin: AppendOrigin) -> None:
        first_offset = self.log.log_end_offset
        batch = ModelBatch.of(RecordBatch(data)).placed(first_offset, LEADER_EPOCH, None)
        info = self.log.append_as_leader(
            data, LEADER_EPOCH, self.harness.clock.wall_ms(), origin=origin
        )
        self.model.append(batch)
        if info.wants_flush and self.flushes_at_roll:
            self.log.flush()

    def roll(self) -> None:
        """Go on in a new segment."""
        self.log.roll(self.harness.clock.wall_ms())

    def raise_high_watermark(self, offset: int) -> None:
        """Commit what is before an offset."""
        self.log.raise_high_watermark(offset)
        self.model.high_watermark = self.log.high_watermark

    # Time and the cleaner.

    def tick(self) -> None:
        """Let the cleaner look at the log."""
        was_busy = self.cleaner.is_busy(PARTITION)
        wall_ms = self.harness.clock.wall_ms()
        plan = plan_cleaning(self.log, self.offset, wall_ms)
        self.cleaner.tick()
        if self.cleaner.is_busy(PARTITION) and not was_busy:
            self.history.begun.append(PassBegun(wall_ms, plan.end_offset))

    def step(self) -> bool:
        """Do the next thing that waits; False if nothing does."""
        if not self.events:
            return False
        self.events.popleft()()
        return True

    def clean(self) -> None:
        """Let the cleaner work until it has nothing to do."""
        for _ in range(STEPS_MAX):
            if not self.step():
                deadline_ms = self.cleaner.next_deadline_ms()
                assert deadline_ms is not None
                wait_ms = deadline_ms - self.harness.clock.monotonic_ms()
                if wait_ms >= 15_000:
                    return
                self.harness.clock.advance(max(wait_ms, 0))
                before = len(self.cleaned)
                self.tick()
                if not self.events and len(self.cleaned) == before:
                    return
        raise AssertionError("the cleaner finds no end")

    def unlink_discarded(self) -> None:
        """What the manager does after file.delete.delay.ms."""
        for segment in self.discarded:
            segment.delete_files()
        self.discarded.clear()

    # Life and death.

    def restart_cleanly(self) -> None:
        """Stop in order, and start."""
        self.cleaner.close()
        while self.step():
            pass
        self.write_cleaner_offset()
        self.harness.close()
        self.harness.filesystem = self.harness.filesystem.after_kill()
        self._reopen()

    def restart_after_kill(self) -> None:
        """The process died."""
        self.harness.restart_after_kill()
        self._reopen()

    def restart_after_power_loss(self) -> None:
        """The machine died; the model follows what a log may lose then."""
        floor = self.log.recovery_point
        self.harness.restart_after_power_loss()
        self._reopen()
        assert floor <= self.log.log_end_offset <= self.model.log_end_offset
        self.model.truncate_to(self.log.log_end_offset)
        self.model.high_watermark = self.log.high_watermark

    def _reopen(self) -> None:
        """Open the log again; all of it is committed then.

        A log does not remember over a restart which markers were not committed yet, so it would
        take their transactions for decided. That is the replicas' business, not compaction's.
        """
        self.harness.open()
        self.log.update_high_watermark(self.log.log_end_offset)
        self.model.high_watermark = self.log.high_watermark
        self.model.log_start_offset = self.log.log_start_offset
        self._begin_life()

    def check(self) -> None:
        """Compare everything with the history."""
        size = self.random.choice([1, 300, 5000, 1 << 20])
        check_compacted(self.log, self.model, self.history, size)
