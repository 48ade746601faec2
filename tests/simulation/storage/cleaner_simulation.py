"""Random lives of a compacted log with its cleaner on a disk that fails, from one seed.

Appends, transactions, commits, truncations, deletions, pauses, restarts and crashes come between
the steps of passes, and crashes also within them. After each the log must be what compaction
allows it to be: `cleaner_checks` has the rules.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from millstream.errors import RecordListTooLarge
from millstream.storage.log.config import LogConfig
from tests.simulation.storage.checks import check_producers
from tests.simulation.storage.cleaner_checks import check_reads_agree
from tests.simulation.storage.cleaner_world import (
    IDEMPOTENT_PRODUCERS,
    TRANSACTIONAL_PRODUCERS,
    CleanerWorld,
    small_map,
)
from tests.simulation.storage.harness import PARTITION, Crash

if TYPE_CHECKING:
    from collections.abc import Callable

_CRASH_PROBABILITY = 0.1
_KEYS = 12


class CleanerSimulation:
    """One seed's story."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = CleanerWorld(
            self.random,
            self._draw_config(),
            small_map(self.random.choice([12, 30, 1000])),
        )
        self.story: list[str] = []
        self._pauses = 0

    def _draw_config(self) -> LogConfig:
        choose = self.random.choice
        return LogConfig(
            cleanup_policy=("compact",),
            internal_segment_bytes=choose([300, 900, 4000]),
            index_interval_bytes=choose([1, 150, 4096]),
            segment_index_bytes=choose([60, 2000]),
            min_cleanable_dirty_ratio=choose([0.0, 0.0, 0.3]),
            min_compaction_lag_ms=choose([0, 0, 50]),
            delete_retention_ms=choose([0, 100, 5000]),
        )

    def run(self, steps: int) -> None:
        """Live through so many operations; an AssertionError tells what is wrong."""
        weights: dict[Callable[[], None], int] = {
            self.append: 30,
            self.end_transaction: 8,
            self.commit: 12,
            self.tick: 20,
            self.step: 30,
            self.clean: 2,
            self.truncate: 1,
            self.delete_records: 1,
            self.retain: 2,
            self.pause: 1,
            self.resume: 2,
            self.flush: 2,
            self.unlink: 2,
            self.restart_cleanly: 1,
            self.kill: 1,
            self.lose_power: 1,
        }
        for operation in self.random.choices(list(weights), list(weights.values()), k=steps):
            self.world.harness.clock.advance(self.random.choice([0, 1, 10, 200]))
            self._perform(operation)
        for last in (self.commit, self.resume_all, self.clean, self.kill, self.clean):
            self._perform(last)

    def _perform(self, operation: Callable[[], None]) -> None:
        world = self.world
        self.story.append(operation.__name__)
        is_cleaning = operation in (self.tick, self.step, self.clean, self.unlink, self.pause)
        if is_cleaning and self.random.random() < _CRASH_PROBABILITY:
            world.harness.crash_within(self.random.randrange(60))
        try:
            operation()
        except Crash as crash:
            self.story.append(f"crash {crash}")
            self._pauses = 0
            if self.random.random() < 0.5:
                world.restart_after_kill()
            else:
                world.restart_after_power_loss()
        world.harness.survive()
        world.check()
        check_producers(world.log, world.model, world.log.log_start_offset)
        end_offset = world.log.last_stable_offset
        check_reads_agree(
            world.log,
            self.random.randint(world.log.log_start_offset, max(end_offset, 0)),
            self.random.choice([1, 1000]),
        )
        assert not world.cleaner.uncleanable

    # Users.

    def append(self) -> None:
        """A batch of some producer."""
        rows = [
            (
                b"k%d" % self.random.randrange(_KEYS),
                None
                if self.random.random() < 0.25
                else self.random.randbytes(self.random.choice([1, 30])),
            )
            for _ in range(self.random.randint(1, 5))
        ]
        producers = [-1, *IDEMPOTENT_PRODUCERS, *TRANSACTIONAL_PRODUCERS, *TRANSACTIONAL_PRODUCERS]
        with suppress(RecordListTooLarge):  # Five values and a codec's frame fill a segment.
            self.world.append(rows, self.random.choice(producers))

    def end_transaction(self) -> None:
        """Commit or abort."""
        self.world.end_transaction(
            self.random.choice(TRANSACTIONAL_PRODUCERS), is_abort=self.random.random() < 0.5
        )

    def commit(self) -> None:
        """The followers have got further."""
        self.world.raise_high_watermark(self.random.choice(self._uncommitted_ends()))

    def _uncommitted_ends(self) -> list[int]:
        """Where a follower may be: a fetch brings whole batches."""
        log = self.world.log
        ends = [each.last_offset + 1 for each in self.world.model.batches]
        between = [each for each in ends if each > log.high_watermark]
        return [log.high_watermark, *between, log.log_end_offset, log.log_end_offset]

    def truncate(self) -> None:
        """A new leader had less."""
        log = self.world.log
        offset = self.random.choice(self._uncommitted_ends())
        self.world.cleaner.pause(PARTITION)
        self.world.harness.before_truncation_to(offset)
        if self.world.offset is not None:
            self.world.offset = min(self.world.offset, offset)
        if log.truncate_to(offset, self.world.harness.clock.wall_ms()):
            self.world.model.truncate_to(offset)
        self.world.cleaner.resume(PARTITION)

    def delete_records(self) -> None:
        """DeleteRecords up to some committed offset."""
        log = self.world.log
        log.raise_log_start_offset(self.random.randint(log.log_start_offset, log.high_watermark))
        self.world.model.log_start_offset = log.log_start_offset
        self.world.harness.checkpoint()

    def retain(self) -> None:
        """Retention comes by, unless a pass is under way."""
        if not self.world.cleaner.is_busy(PARTITION):
            wall_ms = self.world.harness.clock.wall_ms()
            self.world.discarded += self.world.log.delete_old_segments(wall_ms)
            self.world.model.log_start_offset = self.world.log.log_start_offset

    # The manager.

    def tick(self) -> None:
        """The cleaner's turn."""
        self.world.harness.clock.advance(self.random.choice([0, 15_000]))
        self.world.tick()

    def step(self) -> None:
        """A worker's or the owner's turn."""
        self.world.step()

    def clean(self) -> None:
        """All turns, until nothing is left to do."""
        self.world.clean()

    def pause(self) -> None:
        """Keep the cleaner away."""
        self._pauses += 1
        self.world.cleaner.pause(PARTITION)

    def resume(self) -> None:
        """Let it come back."""
        if self._pauses:
            self._pauses -= 1
            self.world.cleaner.resume(PARTITION)

    def resume_all(self) -> None:
        """Let it come back for good."""
        while self._pauses:
            self.resume()

    def flush(self) -> None:
        """Everything to disk."""
        self.world.log.flush()
        self.world.harness.checkpoint()

    def unlink(self) -> None:
        """Old files go."""
        self.world.unlink_discarded()

    # Life and death.

    def restart_cleanly(self) -> None:
        """Stop and start."""
        self._pauses = 0
        self.world.restart_cleanly()

    def kill(self) -> None:
        """kill -9."""
        self._pauses = 0
        self.world.restart_after_kill()

    def lose_power(self) -> None:
        """The plug."""
        self._pauses = 0
        self.world.restart_after_power_loss()
