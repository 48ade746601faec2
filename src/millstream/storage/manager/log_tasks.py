"""What the log manager does from time to time: retention, flushes, checkpoints, removals.

`LogManager.tick` runs it on the owner's thread and never for long: a pass over ten thousand logs
is cut into slices, and files are written and removed by the directories' own threads. Deadlines are
of the monotonic clock, ages of records of the wall clock.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.errors import KafkaStorageError
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.storage.background import Work
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.broker_config import LogManagerConfig
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_registry import LogRegistry
    from millstream.storage.manager.log_slot import LogSlot

SubjectT = TypeVar("SubjectT")

_logger = logging.getLogger(__name__)

_SLICE: Final = 16
"""How many logs one tick looks at; opening one costs about a quarter of a millisecond."""
_FLUSH_LOOK_MIN_MS: Final = 50
"""A shorter flush.ms is met by the append itself."""
_RECOVERY_POINT: Final = attrgetter("recovery_point")
_LOG_START: Final = attrgetter("hidden_log_start")
_HIGH_WATERMARK: Final = attrgetter("high_watermark")
"""The offsets of a slot that are in checkpoints."""
_WATERMARKS: Final = "high watermarks"


class Sweep(Generic[SubjectT]):
    """A periodic pass over many things, a slice at a time."""

    __slots__ = ("_began_ms", "_left", "_subjects", "_visit", "deadline_ms", "interval_ms")

    def __init__(
        self,
        subjects: Callable[[], Iterable[SubjectT]],
        visit: Callable[[SubjectT], None],
        interval_ms: int,
        first_ms: int,
    ) -> None:
        self.interval_ms = interval_ms
        self.deadline_ms = first_ms
        self._subjects = subjects
        self._visit = visit
        self._left: list[SubjectT] = []
        self._began_ms = first_ms

    def tick(self, now_ms: int) -> None:
        """Go on, if it is time."""
        if now_ms < self.deadline_ms:
            return
        if not self._left:
            self._began_ms = now_ms
            self._left = list(self._subjects())
        for _ in range(min(_SLICE, len(self._left))):
            self._visit(self._left.pop())
        self.deadline_ms = now_ms if self._left else _later(self._began_ms, self.interval_ms)

    @property
    def is_under_way(self) -> bool:
        """Whether a pass has begun and is not at its end."""
        return bool(self._left)

    def rest(self) -> None:
        """Make no further pass before `resume`."""
        self.deadline_ms = INT64_MAX

    def resume(self, now_ms: int) -> None:
        """Make a pass within the interval."""
        self.deadline_ms = min(self.deadline_ms, _later(now_ms, self.interval_ms))

    def change_interval(self, interval_ms: int, now_ms: int) -> None:
        """Take another interval; a shorter one counts from now on."""
        if interval_ms != self.interval_ms:
            self.interval_ms = interval_ms
            if not self._left:
                self.deadline_ms = min(
                    _later(self._began_ms, interval_ms), _later(now_ms, interval_ms)
                )


class DelayedRemovals:
    """Files and directories that nobody reads any more and that go after a while."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, LogDirectory, str, Work]] = []
        self._count = 0

    def add(self, deadline_ms: int, directory: LogDirectory, name: str, work: Work) -> None:
        """Have something removed by its directory's thread, when it is time."""
        self._count += 1
        heappush(self._heap, (deadline_ms, self._count, directory, name, work))

    @property
    def deadline_ms(self) -> int:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else INT64_MAX

    def tick(self, now_ms: int) -> None:
        """Hand over what is due; what a failed directory has stays there."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, directory, name, work = heappop(self._heap)
            if directory.is_online:
                directory.chores.add(f"removing {name}", work)


class LogTasks:
    """The periodic work on all logs."""

    def __init__(self, registry: LogRegistry, on_deadline: Callable[[], None]) -> None:
        """`on_deadline` hears that the next deadline was brought forward by what a log did."""
        self._on_deadline = on_deadline
        self.removals = DelayedRemovals()
        self._registry = registry
        self._sweeps: dict[str, Sweep[LogSlot] | Sweep[LogDirectory]] = {}

    def start(self) -> None:
        """Begin to count the time."""
        registry, config = self._registry, self._registry.config
        first_ms = _later(registry.clock.monotonic_ms(), config.initial_task_delay_ms)
        intervals = self._intervals(config)
        slots, directories = registry.slots, lambda: registry.online_directories

        def of_logs(name: str, visit: Callable[[LogSlot], None]) -> None:
            self._sweeps[name] = Sweep(slots, visit, intervals[name], first_ms)

        def of_directories(name: str, visit: Callable[[LogDirectory], None]) -> None:
            self._sweeps[name] = Sweep(directories, visit, intervals[name], first_ms)

        of_logs("retention", self._apply_retention)
        of_logs("producers", self._expire_producers)
        of_directories("recovery points", _checkpoint_recovery_points)
        of_directories("log starts", _checkpoint_log_starts)
        self._sweeps[_WATERMARKS] = Sweep(
            self._directories_to_look_at,
            self._checkpoint_high_watermarks,
            intervals[_WATERMARKS],
            first_ms,
        )
        registry.watermark_wakeup.on_wake = self._resume_watermarks
        self._sweeps["flush"] = Sweep(
            lambda: list(registry.timed_flushes), self._flush_if_due, 1, INT64_MAX
        )

    def update_config(self) -> None:
        """Take new intervals."""
        now_ms = self._registry.clock.monotonic_ms()
        for name, interval_ms in self._intervals(self._registry.config).items():
            if name in self._sweeps:
                self._sweeps[name].change_interval(interval_ms, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        self._schedule_flush()
        deadline_ms = min(
            self.removals.deadline_ms,
            *(sweep.deadline_ms for sweep in self._sweeps.values()),
            INT64_MAX,
        )
        return None if deadline_ms == INT64_MAX else deadline_ms

    def tick(self) -> None:
        """Do what is due, a bounded part of it."""
        now_ms = self._registry.clock.monotonic_ms()
        self._schedule_flush()
        self.removals.tick(now_ms)
        for sweep in self._sweeps.values():
            sweep.tick(now_ms)
        self._rest_watermarks()

    def discard(self, log: UnifiedLog, segments: Iterable[LogSegment]) -> None:
        """Unlink the files of segments that are no longer part of a log, after its delay."""
        directory = self._registry.directory_of(log)
        due_ms = _later(self._registry.clock.monotonic_ms(), log.config.file_delete_delay_ms)
        for segment in segments:
            name = f"segment {segment.base_offset} of {log.directory}"
            self.removals.add(due_ms, directory, name, _removal_of(segment))

    def _intervals(self, config: LogManagerConfig) -> dict[str, int]:
        return {
            "retention": config.retention_check_interval_ms,
            "producers": config.producer_id_expiration_check_interval_ms,
            "recovery points": config.flush_offset_checkpoint_interval_ms,
            "log starts": config.flush_start_offset_checkpoint_interval_ms,
            _WATERMARKS: config.high_watermark_checkpoint_interval_ms,
        }

    def _schedule_flush(self) -> None:
        """Look for due flushes only while some log has a flush.ms, and as often as that asks."""
        sweep = self._sweeps.get("flush")
        if sweep is None:
            return
        timed = self._registry.timed_flushes
        if not timed:
            sweep.deadline_ms = INT64_MAX
            return
        interval_ms = min(self._registry.config.flush_scheduler_interval_ms, min(timed.values()))
        sweep.interval_ms = max(interval_ms, _FLUSH_LOOK_MIN_MS)
        now_ms = self._registry.clock.monotonic_ms()
        sweep.deadline_ms = min(sweep.deadline_ms, _later(now_ms, sweep.interval_ms))

    # High watermarks: most brokers are idle most of the time, and should have nothing to do then.

    def _directories_to_look_at(self) -> Iterable[LogDirectory]:
        """A pass begins. Whoever moves a watermark from now on, or is found, prevents the rest."""
        self._registry.watermark_wakeup.is_awake = False
        return self._registry.online_directories

    def _checkpoint_high_watermarks(self, directory: LogDirectory) -> None:
        if not directory.is_known(directory.high_watermarks, _HIGH_WATERMARK):
            self._registry.watermark_wakeup.is_awake = True
            directory.checkpoint_soon(directory.high_watermarks, directory.high_watermark_table())

    def _rest_watermarks(self) -> None:
        """After a pass that found nothing new, until a high watermark moves."""
        sweep = self._sweeps.get(_WATERMARKS)
        if sweep and not sweep.is_under_way and not self._registry.watermark_wakeup.is_awake:
            sweep.rest()

    def _resume_watermarks(self) -> None:
        self._sweeps[_WATERMARKS].resume(self._registry.clock.monotonic_ms())
        self._on_deadline()

    # One log.

    def _apply_retention(self, slot: LogSlot) -> None:
        registry = self._registry
        if not _is_in_service(slot) or registry.cleaner.is_busy(slot.partition):
            return
        try:
            log = registry.open(slot)
            gone = log.delete_old_segments(registry.clock.wall_ms())
            if gone:
                _logger.info(
                    "%s: retention lets %d segments go, the log begins at %d",
                    slot.path,
                    len(gone),
                    log.log_start_offset,
                    extra={"fields": slot.partition._asdict()},
                )
                self.discard(log, gone)
            if slot.idle_end_offset == log.log_end_offset:
                log.release()
            slot.idle_end_offset = log.log_end_offset
        except KafkaStorageError as error:
            about = {"fields": slot.partition._asdict()}
            _logger.warning("retention of %s failed: %s", slot.path, error, extra=about)
            registry.note_error(slot.directory, error)

    def _expire_producers(self, slot: LogSlot) -> None:
        if _is_in_service(slot) and slot.log is not None:
            slot.log.remove_expired_producers(self._registry.clock.wall_ms())

    def _flush_if_due(self, slot: LogSlot) -> None:
        log = slot.log
        if log is None or not _is_in_service(slot):
            return
        if log.wants_flush(self._registry.clock.wall_ms()):
            slot.directory.commit.flush(log)


def _is_in_service(slot: LogSlot) -> bool:
    """A pass may meet a log that has gone since it began."""
    return slot.directory.logs.get(slot.partition) is slot and slot.fault is None


def _checkpoint_recovery_points(directory: LogDirectory) -> None:
    if not directory.is_known(directory.recovery_points, _RECOVERY_POINT):
        directory.checkpoint_soon(directory.recovery_points, directory.recovery_point_table())


def _checkpoint_log_starts(directory: LogDirectory) -> None:
    if not directory.is_known(directory.log_starts, _LOG_START):
        directory.checkpoint_soon(directory.log_starts, directory.log_start_table())


def _later(start_ms: int, delay_ms: int) -> int:
    return min(start_ms + max(delay_ms, 1), INT64_MAX)


def _removal_of(segment: LogSegment) -> Work:
    def remove() -> None:
        # The whole log may have gone before its old segments did.
        with suppress(FileNotFoundError):
            segment.delete_files()

    return remove
