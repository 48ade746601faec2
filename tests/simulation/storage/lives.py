"""A log that dies and is opened again, and what must be left of it each time.

`StorageSimulation` adds what happens between; here is how lives end and begin, and what is checked
after every operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from millstream.storage.log.config import LogConfig
from tests.simulation.storage import checks
from tests.simulation.storage.harness import Crash, LogHarness
from tests.simulation.storage.model import ModelLog
from tests.simulation.storage.producers import BatchSource

if TYPE_CHECKING:
    from millstream.storage.log.local_log import SyncJob
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog


@dataclass(slots=True)
class Survival:
    """What a crash within an operation may leave: a prefix of `longest` that reaches `floor`."""

    longest: ModelLog
    floor: int
    may_begin_anew_at: int | None = None
    deletable_below: int = 0


class LogLives:
    """One log, one model, and how far they may differ after a crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = LogHarness(self.random, self._draw_config())
        self.source = BatchSource(self.random)
        self.model = ModelLog()
        self.survival = Survival(self.model, 0)
        self.epoch = 0
        self.is_leader = True
        self.durable_offset = 0
        self.deleted_below = 0
        self.start_ever = 0
        self.was_restarted = False
        self.jobs: list[SyncJob] = []
        self.deleted: list[LogSegment] = []
        self.damaged: set[str] = set()
        self.story: list[str] = []

    @property
    def log(self) -> UnifiedLog:
        """The log in its present life."""
        return self.harness.log

    @property
    def now_ms(self) -> int:
        """The simulated time."""
        return self.harness.clock.wall_ms()

    # Restarts.

    def _restart(self, *, is_power_loss: bool) -> None:
        if is_power_loss:
            self.harness.restart_after_power_loss()
        else:
            self.harness.restart_after_kill()
        self._reopen(is_power_loss=is_power_loss)

    def _reopen(self, *, is_power_loss: bool) -> None:
        """Open the log, which may crash too, and see what is left."""
        for attempt in range(4):
            if attempt < 3 and self.random.random() < 0.2:
                self.harness.crash_within(self.random.randrange(40))
            try:
                self.harness.open()
                break
            except Crash as crash:
                self.story.append(f"crash while opening, {crash}")
                if self.random.random() < 0.5:
                    is_power_loss = True
                    self.harness.restart_after_power_loss()
                else:
                    self.harness.restart_after_kill()
        self.harness.survive()
        self.harness.filesystem.capacity_bytes = None
        self._accept(is_power_loss=is_power_loss)
        if self.random.random() < 0.3:
            self._recover_again()

    def _accept(self, *, is_power_loss: bool) -> None:
        """Check that what is left is allowed, and go on from there."""
        survival, log = self.survival, self.log
        end = log.log_end_offset
        is_anew = end == survival.may_begin_anew_at and log.size == 0
        if is_anew:
            self.model = survival.longest.copy()
            self._model_begins_at(end)
        else:
            floor = min(survival.floor, self.durable_offset) if is_power_loss else survival.floor
            lost = [each for each in survival.longest.batches if end <= each.last_offset < floor]
            assert not lost, f"acknowledged batches are gone: {lost}"
            self.model = survival.longest.copy()
            ends = {each.last_offset + 1 for each in self.model.batches}
            assert end in {*ends, self.model.log_end_offset, log.log_start_offset}
            self.model.truncate_to(end)
            self.model.log_end_offset = end
        self.model.log_start_offset = log.log_start_offset
        self.model.high_watermark = log.high_watermark
        assert log.segments.first.base_offset <= max(
            self.deleted_below, survival.deletable_below, log.log_start_offset
        )
        self._note_deletions()
        self.was_restarted = True
        self.jobs.clear()
        self.deleted.clear()
        self.damaged.clear()
        self._check()

    def _recover_again(self) -> None:
        """Recovery changes nothing that is right: doing it again gives the same log."""
        before = self._description()
        self.harness.restart_after_kill()
        self.harness.open()
        assert self._description() == before
        self.model.high_watermark = self.log.high_watermark

    def _description(self) -> tuple[object, ...]:
        log = self.log
        # A producer whose data is all deleted may be remembered or not.
        recent = self.model.producers(max(log.log_start_offset, self.deleted_below))
        producers = {
            pid: (entry.epoch, entry.last_sequence, entry.last_offset)
            for pid, entry in log.producers.producers.items()
            if pid in recent and recent[pid].last_offset >= 0
        }
        return (
            (log.log_start_offset, log.log_end_offset),
            checks.read_all(log, self.random),
            # An empty log may know its last epoch from deleted records, or not.
            log.epochs.entries if log.log_end_offset > log.log_start_offset else (),
            producers,
        )

    # Looking at the log.

    def _check(self) -> None:
        log, model, random = self.log, self.model, self.random
        checks.check_bounds(log, model)
        if not self.was_restarted:
            assert log.last_stable_offset == model.last_stable_offset()
        checks.check_content(log, model, random, self.deleted_below)
        complete_from = max(log.log_start_offset, self.deleted_below)
        # Epochs of deleted records are forgotten, and a crash may bring such records back.
        self.start_ever = max(self.start_ever, log.log_start_offset)
        checks.check_epochs(log, model, max(complete_from, self.start_ever))
        checks.check_producers(log, model, complete_from)
        if log.last_stable_offset > complete_from:
            offset = random.randint(complete_from, log.last_stable_offset)
            checks.check_committed_read(log, model, offset, random.choice([1, 300, 10_000]))
        if model.batches and self.deleted_below <= log.log_start_offset:
            known = random.choice(model.batches).records[0].timestamp
            checks.check_time(log, model, max(known + random.choice([-1, 0, 1]), 0))

    def _model_begins_at(self, offset: int) -> None:
        self.model.begin_at(offset)
        self.deleted_below = self.start_ever = 0

    def _note_deletions(self) -> None:
        self.deleted_below = max(self.deleted_below, self.log.segments.first.base_offset)

    def _draw_config(self) -> LogConfig:
        choice = self.random.choice
        return LogConfig(
            internal_segment_bytes=choice([1500, 3000, 10_000]),
            index_interval_bytes=choice([0, 100, 500, 4096]),
            segment_index_bytes=choice([40, 200, 4096]),
            segment_ms=choice([1000, 604_800_000]),
            compression_type=choice(["producer", "producer", "zstd", "uncompressed"]),
            message_timestamp_type=choice(["CreateTime", "CreateTime", "LogAppendTime"]),
            retention_ms=choice([-1, 2000]),
            retention_bytes=choice([-1, 2000, 5000]),
            preallocate=choice([False, False, True]),
        )
