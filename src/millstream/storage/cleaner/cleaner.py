"""Compaction: keeps the last value of each key, log by log, the dirtiest first.

Whoever owns the logs makes one `LogCleaner`, gives it to the `LogManager` as its `cleaner`, and
calls `tick` when `next_deadline_ms` has come. The owner's thread decides what to clean and swaps
the results in; reading and writing happen on what `run` gives, a `CleaningPass` at a time per
thread. The rules of what stays are in `compaction`; retention of old segments is the manager's.

    asyncio:    LogCleaner(..., run=ThreadPoolExecutor(1).submit, post=loop.call_soon_threadsafe)
    simulation: LogCleaner(..., run=events.append, post=events.append)

After `close`, end the threads before the manager stops: a worker looks up at every batch.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import CorruptMessage, KafkaStorageError
from millstream.storage.cleaner.cleaning_pass import (
    CleanedGroup,
    CleaningAborted,
    CleaningPass,
    PassEnded,
    PassRequest,
)
from millstream.storage.cleaner.cleaning_plan import last_records_of_producers, plan_cleaning
from millstream.storage.cleaner.cleaning_ports import CleaningStats
from millstream.storage.cleaner.io_throttle import IoThrottle
from millstream.storage.faults import is_disk_full, storage_error
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.storage.background import Work
    from millstream.storage.cleaner.cleaning_pass import Slice
    from millstream.storage.cleaner.cleaning_plan import CleaningPlan
    from millstream.storage.cleaner.cleaning_ports import CleanableLogs
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.broker_config import CleanerConfig
    from millstream.types import TopicPartition

    Outcome: TypeAlias = Slice | Exception

_logger = logging.getLogger(__name__)

_LOOK_SLICE: Final = 16
"""How many logs one tick looks at; opening one costs about a quarter of a millisecond."""


@dataclass(slots=True, eq=False)
class _Cleaning:
    """A pass under way."""

    partition: TopicPartition
    log: UnifiedLog
    plan: CleaningPlan
    work: CleaningPass
    began_ms: int
    truncation_count: int
    is_running: bool = False
    resume_ms: int = 0
    """When the throttle lets it go on, if it is not running."""


@dataclass(slots=True)
class _Look:
    """A round over all compacted logs, a slice at a time, for the dirtiest one."""

    left: list[TopicPartition] = field(default_factory=list)
    best: TopicPartition | None = None
    best_ratio: float = -1.0


class LogCleaner:
    """Compacts the logs of one manager. The owner's thread calls everything."""

    def __init__(
        self,
        logs: CleanableLogs,
        config: CleanerConfig,
        *,
        filesystem: FileSystem,
        clock: Clock,
        run: Callable[[Work], object],
        post: Callable[[Work], object],
        on_deadline: Callable[[], None] = lambda: None,
        on_cleaned: Callable[[CleaningStats], None] = lambda _: None,
    ) -> None:
        """`on_deadline` is called when `next_deadline_ms` has become earlier by itself."""
        self.uncleanable: dict[TopicPartition, Exception] = {}
        """Partitions that are left alone until the next start, because a pass over them failed."""
        self._logs = logs
        self._config = config
        self._filesystem = filesystem
        self._clock = clock
        self._run = run
        self._post = post
        self._on_deadline = on_deadline
        self._on_cleaned = on_cleaned
        self._throttle = IoThrottle(config.io_max_bytes_per_second)
        self._cleanings: dict[TopicPartition, _Cleaning] = {}
        self._pauses: Counter[TopicPartition] = Counter()
        self._look: _Look | None = None
        self._look_ms = clock.monotonic_ms()
        self._is_closed = False

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, on the monotonic clock; None if never."""
        waiting = [each.resume_ms for each in self._cleanings.values() if not each.is_running]
        if self._may_begin:
            waiting.append(self._look_ms)
        deadline_ms = min(waiting, default=INT64_MAX)
        return None if deadline_ms == INT64_MAX else deadline_ms

    def tick(self) -> None:
        """Go on with passes that waited, and look for a log to clean, but not for long."""
        now_ms = self._clock.monotonic_ms()
        for cleaning in list(self._cleanings.values()):
            if not cleaning.is_running and now_ms >= cleaning.resume_ms:
                self._submit(cleaning)
        if self._may_begin and now_ms >= self._look_ms:
            self._continue_look(now_ms)

    def update_config(self, config: CleanerConfig) -> None:
        """Take new settings; passes under way keep their map and buffers."""
        self._config = config
        self._throttle.bytes_per_second = config.io_max_bytes_per_second
        self._look_ms = min(self._look_ms, self._clock.monotonic_ms() + config.backoff_ms)

    def close(self) -> None:
        """Begin nothing more, and let what is under way come to nothing."""
        self._is_closed = True
        self._look = None
        for cleaning in list(self._cleanings.values()):
            self._cancel(cleaning)

    # What the log manager asks (`CleaningControl`).

    def pause(self, partition: TopicPartition) -> None:
        """Abort what is under way and begin nothing until `resume`; pauses are counted."""
        self._pauses[partition] += 1
        if partition in self._cleanings:
            self._cancel(self._cleanings[partition])

    def resume(self, partition: TopicPartition) -> None:
        """Undo one `pause`."""
        self._pauses[partition] -= 1
        if self._pauses[partition] <= 0:
            del self._pauses[partition]

    def forget(self, partition: TopicPartition) -> None:
        """The log is out of service: drop whatever is known about it, pauses too."""
        if partition in self._cleanings:
            self._cancel(self._cleanings[partition])
        self._pauses.pop(partition, None)
        self.uncleanable.pop(partition, None)

    def is_busy(self, partition: TopicPartition) -> bool:
        """Whether a pass over its segments is under way."""
        return partition in self._cleanings

    # Choosing.

    @property
    def _may_begin(self) -> bool:
        is_free = len(self._cleanings) < self._config.threads
        return self._config.enable and is_free and not self._is_closed

    def _continue_look(self, now_ms: int) -> None:
        """Look at some more logs; after the last one, begin with the dirtiest."""
        look = self._look
        if look is None:
            look = self._look = _Look(self._logs.compacted_logs())
        for _ in range(min(_LOOK_SLICE, len(look.left))):
            partition = look.left.pop()
            found = self._plan(partition)
            if found is not None and found[1].dirty_ratio > look.best_ratio:
                look.best, look.best_ratio = partition, found[1].dirty_ratio
        if look.left:
            return
        self._look = None
        chosen = None if look.best is None else self._plan(look.best)
        if look.best is None or chosen is None:
            self._look_ms = now_ms + self._config.backoff_ms
        else:
            self._begin(look.best, *chosen)

    def _plan(self, partition: TopicPartition) -> tuple[UnifiedLog, CleaningPlan] | None:
        """What to clean of a log, if it may be cleaned and wants to be."""
        is_left_alone = partition in self.uncleanable or partition in self._pauses
        if is_left_alone or partition in self._cleanings:
            return None
        log = None
        try:
            log = self._logs.get(partition)
            if log is None or log.is_closed or not log.config.is_compacted:
                return None
            offset = self._logs.cleaner_offset(partition)
            plan = plan_cleaning(log, offset, self._clock.wall_ms())
        except (KafkaStorageError, CorruptMessage, OSError) as error:
            self._leave_alone(partition, log, error)
            return None
        return (log, plan) if plan.is_due(log.config) else None

    # A pass.

    def _begin(self, partition: TopicPartition, log: UnifiedLog, plan: CleaningPlan) -> None:
        config = self._config
        try:
            # Those that ended before the log start have no marker any more to end them.
            aborted = log.aborted_transactions(log.log_start_offset, plan.end_offset)
        except KafkaStorageError as error:
            self._leave_alone(partition, log, error)
            return
        request = PassRequest(
            filesystem=self._filesystem,
            directory=log.directory,
            config=log.config,
            plan=plan,
            aborted=aborted,
            last_records=last_records_of_producers(log),
            log_start_offset=log.log_start_offset,
            unsynced_bases=_unsynced_bases(log),
            now_ms=self._clock.wall_ms(),
            map_bytes_max=config.dedupe_buffer_size // config.threads,
            map_load_factor=config.io_buffer_load_factor,
            buffer_bytes=max(config.io_buffer_size // config.threads // 2, 1),
        )
        _logger.info(
            "compacting %s from %d to %d, %.0f%% of it are dirty",
            log.directory,
            plan.first_dirty_offset,
            plan.end_offset,
            plan.dirty_ratio * 100,
            extra={"fields": partition._asdict()},
        )
        cleaning = _Cleaning(
            partition,
            log,
            plan,
            CleaningPass(request),
            self._clock.monotonic_ms(),
            log.truncation_count,
        )
        self._cleanings[partition] = cleaning
        self._submit(cleaning)

    def _submit(self, cleaning: _Cleaning) -> None:
        cleaning.is_running = True
        slice_bytes = self._throttle.slice_bytes
        self._run(lambda: self._perform(cleaning, slice_bytes))

    def _perform(self, cleaning: _Cleaning, slice_bytes: float) -> None:
        """On a worker's thread."""
        outcome: Outcome
        try:
            if cleaning.work.is_cancelled:
                cleaning.work.discard()
                outcome = CleaningAborted()
            else:
                outcome = cleaning.work.run(slice_bytes)
        except Exception as error:
            outcome = error
            with suppress(OSError):
                cleaning.work.discard()
        self._post(lambda: self._end_slice(cleaning, outcome))

    def _end_slice(self, cleaning: _Cleaning, outcome: Outcome) -> None:
        """A slice is done: swap in what it made, and go on."""
        cleaning.is_running = False
        if isinstance(outcome, Exception):
            self._end_failed(cleaning, outcome)
        elif cleaning.work.is_cancelled:
            self._submit(cleaning)
        elif isinstance(outcome.result, PassEnded):
            self._end_pass(cleaning, outcome.result.end_offset)
        elif outcome.result is None or self._swap(cleaning, outcome.result):
            self._go_on(cleaning, outcome.byte_count)

    def _go_on(self, cleaning: _Cleaning, byte_count: int) -> None:
        now_ms = self._clock.monotonic_ms()
        cleaning.resume_ms = self._throttle.charge(byte_count, now_ms)
        if cleaning.resume_ms <= now_ms:
            self._submit(cleaning)
        else:
            self._on_deadline()

    def _swap(self, cleaning: _Cleaning, group: CleanedGroup) -> bool:
        """Put a rewritten segment in its place; False if that was the end of the pass."""
        log = cleaning.log
        found = [log.segments.get(span.base_offset) for span in group.replaced]
        replaced = [each for each in found if each is not None]
        is_current = not log.is_closed and log.truncation_count == cleaning.truncation_count
        if len(replaced) < len(found) or not is_current:
            _logger.info("%s has changed; its compaction is given up", log.directory)
            self._cancel(cleaning)
            return False
        try:
            log.replace_segments(group.segment, replaced)
        except KafkaStorageError as error:
            self._end_failed(cleaning, error)
            return False
        cleaning.work.mark_swapped()
        self._logs.discard_segments(log, replaced)
        return True

    def _end_pass(self, cleaning: _Cleaning, end_offset: int) -> None:
        del self._cleanings[cleaning.partition]
        self._logs.set_cleaner_offset(cleaning.partition, end_offset)
        counts = cleaning.work.counts
        stats = CleaningStats(
            cleaning.partition,
            cleaning.plan.first_dirty_offset,
            end_offset,
            cleaning.plan.dirty_ratio,
            counts.key_count,
            counts.map_bytes_read,
            counts.bytes_read,
            counts.bytes_written,
            self._clock.monotonic_ms() - cleaning.began_ms,
        )
        _logger.info(
            "compacted %s up to %d: %d bytes became %d",
            cleaning.log.directory,
            end_offset,
            stats.bytes_read,
            stats.bytes_written,
            extra={"fields": cleaning.partition._asdict()},
        )
        self._on_cleaned(stats)
        self._look_soon(0)

    def _end_failed(self, cleaning: _Cleaning, error: Exception) -> None:
        """A pass came to nothing: it was not wanted any more, or something is wrong."""
        del self._cleanings[cleaning.partition]
        if cleaning.work.is_cancelled:
            self._look_soon(0)
        else:
            self._leave_alone(cleaning.partition, cleaning.log, error)

    def _cancel(self, cleaning: _Cleaning) -> None:
        """Nothing of a pass will be swapped in from now on; a worker removes what it wrote."""
        cleaning.work.cancel()
        if not cleaning.is_running:
            self._submit(cleaning)

    def _leave_alone(
        self, partition: TopicPartition, log: UnifiedLog | None, error: Exception
    ) -> None:
        """Compaction of a log failed; the others go on."""
        self._look_soon(self._config.backoff_ms)
        if isinstance(error, OSError) and log is not None:
            cause, error = error, storage_error(log.directory, "compacting", error)
            error.__cause__ = cause
        if log is not None and self._logs.note_error(log, error):
            return
        about = {"fields": partition._asdict()}
        if is_disk_full(error):
            _logger.warning("%s is not compacted for now: %s", partition, error, extra=about)
            return
        _logger.error("%s is not compacted until the next start: %s", partition, error, extra=about)
        self.uncleanable[partition] = error

    def _look_soon(self, delay_ms: int) -> None:
        self._look_ms = self._clock.monotonic_ms() + delay_ms
        self._on_deadline()


def _unsynced_bases(log: UnifiedLog) -> list[int]:
    if log.recovery_point >= log.log_end_offset:
        return []
    return [segment.base_offset for segment in log.segments.from_offset(log.recovery_point)]
