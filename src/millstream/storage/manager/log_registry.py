"""Which logs there are, in which directory, and which of them are in service.

The parts of the log manager share one: `LogManager`, its periodic tasks, its moves. It opens logs
that are asked for and takes the logs of a failed directory out of service. It decides nothing about
their content. The owner's thread calls everything but `load`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError
from millstream.storage.cleaner.cleaning_control import CleaningControl, NoCleaning
from millstream.storage.faults import is_disk_failure, is_disk_full, is_passing, storage_errors
from millstream.storage.filesystem import directory_of
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.unified_log import UnifiedLog
from millstream.storage.log.watermark_wakeup import WatermarkWakeup
from millstream.storage.manager.log_directory import LogDirectory
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from millstream.clock import Clock
    from millstream.storage.background import Background
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.manager.broker_config import LogManagerConfig
    from millstream.storage.manager.log_slot import LogSlot
    from millstream.types import TopicPartition, Uuid

_logger = logging.getLogger(__name__)

_FULL_TOLD_EVERY_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class DirectoryFailure:
    """A directory has gone out of service, with all its logs."""

    path: str
    directory_id: Uuid | None
    error: KafkaStorageError
    partitions: tuple[TopicPartition, ...]
    is_last: bool
    """No directory is left: the broker can do no more."""


class LogRegistry:
    """The directories and their logs."""

    def __init__(
        self,
        config: LogManagerConfig,
        *,
        filesystem: FileSystem,
        clock: Clock,
        random: Random,
        background: Background,
        config_for: Callable[[str], LogConfig],
        on_failure: Callable[[DirectoryFailure], None],
    ) -> None:
        self.config = config
        self.filesystem = filesystem
        self.clock = clock
        self.random = random
        self.cleaner: CleaningControl = NoCleaning()
        self.directories = {
            path: LogDirectory(
                filesystem, path, background, on_failure=self.fail, on_error=self.note_error
            )
            for path in dict.fromkeys(each.rstrip("/") or "/" for each in config.log_dirs)
        }
        self.current: dict[TopicPartition, LogSlot] = {}
        self.future: dict[TopicPartition, LogSlot] = {}
        self.offline: dict[TopicPartition, str] = {}
        """Partitions whose log was in a directory that failed, and that directory."""
        self.config_for = config_for
        """A topic's settings, by its name; also asked on worker threads while logs are loaded."""
        self.watermark_wakeup = WatermarkWakeup()
        """Shared by all logs."""
        self._on_failure = on_failure
        # When it was last said that a directory is full.
        self._told_full_ms: dict[str, int] = {}
        # Logs with a `flush.ms`, and that time.
        self._flush_intervals_ms: dict[LogSlot, int] = {}

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories in service, in the order of `log.dirs`."""
        return [each for each in self.directories.values() if each.is_online]

    def slots(self) -> Iterator[LogSlot]:
        """All logs in service, future ones too."""
        yield from list(self.current.values())
        yield from list(self.future.values())

    def directory_of(self, log: UnifiedLog) -> LogDirectory:
        """The directory a log is in."""
        return self.directories[directory_of(log.directory)]

    def require(self, partition: TopicPartition) -> LogSlot:
        """A partition's place; an error that says why there is none."""
        slot = self.current.get(partition)
        if slot is None:
            raise self.absence(partition)
        return slot

    def absence(self, partition: TopicPartition) -> KafkaStorageError:
        """Why a partition has no log here."""
        failed = self.offline.get(partition)
        if failed is None:
            return KafkaStorageError(f"{partition} has no log on this broker")
        reason = self.directories[failed].error
        return KafkaStorageError(f"{partition} is in {failed}, which is out of service: {reason}")

    # Opening.

    def open(self, slot: LogSlot) -> UnifiedLog:
        """The log, which is loaded if nobody has asked for it before."""
        if slot.log is not None:
            return slot.log
        if slot.fault is not None:
            if not is_passing(slot.fault):
                raise slot.fault
            slot.fault = None
        try:
            log = self.load(slot)
            self.publish(slot, log)
        except KafkaStorageError as error:
            self.note_error(slot.directory, error)
            raise
        return log

    def load(
        self,
        slot: LogSlot,
        progress: Callable[[int, int], None] | None = None,
        *,
        is_new: bool = False,
    ) -> UnifiedLog:
        """Make the log of a place from its files. May run on a worker thread: publishes nothing."""
        recovery_point, log_start_offset, high_watermark = slot.checkpointed
        request = LoadRequest(
            filesystem=self.filesystem,
            directory=slot.path,
            config=self.config_for(slot.partition.topic),
            now_ms=self.clock.wall_ms(),
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=slot.directory.cleaner_offsets.get(slot.partition, 0),
            is_clean=slot.is_clean,
            is_new=is_new,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            verifies_transactions=self.config.transaction_partition_verification_enable,
            progress=progress,
        )
        log = UnifiedLog.open(request, high_watermark=high_watermark, random=self.random)
        # A log that is merely there holds no descriptor: there may be ten thousand of them.
        log.release()
        return log

    def publish(self, slot: LogSlot, log: UnifiedLog) -> None:
        """The log is there for all."""
        slot.log = log
        try:
            self._withdraw_false_recovery_point(slot, log)
        except KafkaStorageError:
            slot.log = None
            raise
        self.note_config(slot)
        log.tail.wakeup = self.watermark_wakeup
        self.watermark_wakeup.wake()

    def _withdraw_false_recovery_point(self, slot: LogSlot, log: UnifiedLog) -> None:
        """A log may end before what the checkpoint calls safe, because its end was lost.

        Other records will have those offsets, and no checkpoint may vouch for them after a crash.
        """
        checkpoint = slot.directory.recovery_points
        if checkpoint.highest(slot.partition) > log.recovery_point:
            with storage_errors(checkpoint.path, "lowering a recovery point"):
                checkpoint.write(slot.directory.recovery_point_table())

    def note_config(self, slot: LogSlot) -> None:
        """A log has new settings: remember those that give the tasks work."""
        self._flush_intervals_ms.pop(slot, None)
        if slot.log is not None and slot.log.config.flush_ms < INT64_MAX:
            self._flush_intervals_ms[slot] = slot.log.config.flush_ms

    @property
    def timed_flushes(self) -> dict[LogSlot, int]:
        """The logs that are to be synced after some time, and that time."""
        return self._flush_intervals_ms

    def add(self, slot: LogSlot) -> None:
        """A log comes into service, open or not."""
        self.watermark_wakeup.wake()
        slot.directory.logs[slot.partition] = slot
        (self.future if slot.is_future else self.current)[slot.partition] = slot

    def remove(self, slot: LogSlot) -> None:
        """A log goes out of service."""
        self.watermark_wakeup.wake()
        if slot.directory.logs.get(slot.partition) is slot:
            del slot.directory.logs[slot.partition]
        logs = self.future if slot.is_future else self.current
        if logs.get(slot.partition) is slot:
            del logs[slot.partition]
        self._flush_intervals_ms.pop(slot, None)
        slot.directory.cleaner_offsets.pop(slot.partition, None)
        if not slot.is_future:
            self.cleaner.forget(slot.partition)

    # Failing.

    def note_error(self, directory: LogDirectory, error: Exception) -> bool:
        """Take a directory out of service if an error says that its disk has failed; if it did."""
        if not directory.is_online or not is_disk_failure(error):
            if is_disk_full(error):
                self._note_full(directory, error)
            return not directory.is_online
        if not isinstance(error, KafkaStorageError):
            error = KafkaStorageError(f"{directory.path} has failed ({error})")
        self.fail(directory, error)
        return True

    def _note_full(self, directory: LogDirectory, error: Exception) -> None:
        """Say it now and then: every append of every producer brings the same error."""
        now_ms = self.clock.monotonic_ms()
        told_ms = self._told_full_ms.get(directory.path)
        if told_ms is None or now_ms - told_ms >= _FULL_TOLD_EVERY_MS:
            self._told_full_ms[directory.path] = now_ms
            _logger.error("%s; records are refused until there is room again", error)

    def fail(self, directory: LogDirectory, error: KafkaStorageError) -> None:
        """Take a directory out of service. Nothing is written to it any more."""
        if not directory.is_online:
            return
        directory.error = error
        _logger.error("%s is taken out of service: %s", directory.path, error)
        slots = list(directory.logs.values())
        for slot in slots:
            if slot.log is not None:
                slot.log.abandon()
            self.remove(slot)
            if not slot.is_future:
                self.offline[slot.partition] = directory.path
        directory.close_workers(error)
        self._on_failure(
            DirectoryFailure(
                directory.path,
                directory.directory_id,
                error,
                tuple(slot.partition for slot in slots),
                is_last=not self.online_directories,
            )
        )

    def rename(self, slot: LogSlot, name: str) -> None:
        """Give a log's directory another name, durably."""
        path = f"{slot.directory.path}/{name}"
        try:
            if slot.log is None:
                with storage_errors(slot.path, "renaming"):
                    self.filesystem.rename(slot.path, path)
            else:
                slot.log.move_to(path)
            slot.name = name
            with storage_errors(slot.path, "renaming"):
                self.filesystem.sync_directory(slot.directory.path)
        except KafkaStorageError as error:
            self.note_error(slot.directory, error)
            raise
