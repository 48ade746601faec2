"""Loads many logs at once after an unclean stop, and says how far it is.

`LogManager.start` calls it and waits. Each directory has its own threads, so that a slow disk does
not hold another up; large logs go first, so that none of them is alone at the end. Results come
back to the caller's thread, one by one; what failed is the caller's to judge.
"""

from __future__ import annotations

import logging
import queue
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from millstream.clock import Clock
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_slot import LogSlot

    SegmentProgress: TypeAlias = Callable[[int, int], None]

_logger = logging.getLogger(__name__)

_LINE_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far the recovery of all directories is; bytes are those that must be verified."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int

    def __str__(self) -> str:
        return (
            f"{self.logs_done} of {self.logs_total} logs, "
            f"{self.bytes_done >> 20} of {self.bytes_total >> 20} MiB"
        )


class _Advance(NamedTuple):
    """A log has come further."""

    slot: LogSlot
    bytes_done: int


class _Loaded(NamedTuple):
    """A log is there, or it is known why not."""

    slot: LogSlot
    result: UnifiedLog | KafkaStorageError


class LogRecovery:
    """One recovery of all the logs that need it."""

    def __init__(
        self,
        *,
        load: Callable[[LogSlot, SegmentProgress], UnifiedLog],
        on_result: Callable[[LogSlot, UnifiedLog | KafkaStorageError], None],
        on_progress: Callable[[RecoveryProgress], None],
        clock: Clock,
    ) -> None:
        """`load` runs on worker threads, the others on the thread that calls `run`."""
        self._load = load
        self._on_result = on_result
        self._on_progress = on_progress
        self._clock = clock
        self._events: queue.SimpleQueue[_Advance | _Loaded] = queue.SimpleQueue()
        self._bytes: dict[LogSlot, int] = {}
        self._bytes_done: dict[LogSlot, int] = {}
        self._bytes_total = self._bytes_done_total = 0
        self._logs_done = 0
        self._next_line_ms = 0

    def run(
        self,
        slots: Mapping[LogDirectory, Sequence[LogSlot]],
        make_pool: Callable[[int], Executor],
        threads_per_directory: int,
    ) -> None:
        """Load them all; returns when the last one is done."""
        self._bytes = {slot: self._bytes_of(slot) for each in slots.values() for slot in each}
        self._bytes_total = sum(self._bytes.values())
        if not self._bytes:
            return
        self._next_line_ms = self._clock.monotonic_ms() + _LINE_INTERVAL_MS
        _logger.info("recovering after an unclean stop: %s", self.progress)
        pools = []
        try:
            for each in slots.values():
                pool = make_pool(threads_per_directory)
                pools.append(pool)
                for slot in sorted(each, key=self._bytes.__getitem__, reverse=True):
                    pool.submit(self._load_one, slot)
            while self._logs_done < len(self._bytes):
                self._note(self._events.get())
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)
        _logger.info("recovered %s", self.progress)

    @property
    def progress(self) -> RecoveryProgress:
        """How far it is."""
        return RecoveryProgress(
            self._logs_done, len(self._bytes), self._bytes_done_total, self._bytes_total
        )

    def _bytes_of(self, slot: LogSlot) -> int:
        try:
            return slot.bytes_from(slot.checkpointed.recovery_point)
        except OSError:
            return 0  # Loading it will say what is wrong.

    def _load_one(self, slot: LogSlot) -> None:
        """On a worker's thread."""
        result: UnifiedLog | KafkaStorageError

        def advance(done: int, total: int) -> None:
            self._events.put(_Advance(slot, self._bytes[slot] * done // total))

        try:
            result = slot.directory.error or self._load(slot, advance)
        except KafkaStorageError as error:
            result = error
        except Exception as error:
            _logger.exception("%s cannot be loaded", slot.path)
            result = KafkaStorageError(f"{slot.path} cannot be loaded ({error!r})")
            result.__cause__ = error
        self._events.put(_Loaded(slot, result))

    def _note(self, event: _Advance | _Loaded) -> None:
        match event:
            case _Advance(slot, bytes_done):
                self._note_bytes(slot, bytes_done)
            case _Loaded(slot, result):
                self._note_bytes(slot, self._bytes[slot])
                self._logs_done += 1
                self._on_result(slot, result)
        progress = self.progress
        self._on_progress(progress)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_line_ms:
            self._next_line_ms = now_ms + _LINE_INTERVAL_MS
            _logger.info("recovering: %s", progress)

    def _note_bytes(self, slot: LogSlot, bytes_done: int) -> None:
        self._bytes_done_total += bytes_done - self._bytes_done.get(slot, 0)
        self._bytes_done[slot] = bytes_done
