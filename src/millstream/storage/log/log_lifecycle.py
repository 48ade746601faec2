"""How a log comes into being, how it is cut, and how it goes.

`LogManager` and its moves use it. A log that goes is renamed at once and removed later; its name
is free again as soon as the rename is on disk.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from millstream.errors import InvalidTopic, KafkaStorageError, LogDirNotFound
from millstream.storage.faults import storage_errors
from millstream.storage.file_names import (
    parse_partition_directory_name,
    partition_directory_name,
    renamed_directory_name,
)
from millstream.storage.manager.meta_properties import write_partition_metadata
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_registry import LogRegistry
    from millstream.storage.manager.log_slot import LogSlot
    from millstream.storage.manager.log_tasks import LogTasks
    from millstream.storage.manager.offset_checkpoint import OffsetCheckpoint
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)


class LogLifecycle:
    """Creates, truncates and deletes logs."""

    def __init__(self, registry: LogRegistry, tasks: LogTasks) -> None:
        self._registry = registry
        self._tasks = tasks

    # Creating.

    def directory_for_new(
        self, partition: TopicPartition, directory_id: Uuid | None
    ) -> LogDirectory:
        """Where a new log goes: where the controller wants it, or where the fewest logs are."""
        online = self._registry.online_directories
        if directory_id is not None and directory_id != Uuid.ZERO:
            for each in online:
                if each.directory_id == directory_id:
                    return each
            raise LogDirNotFound(f"no directory in service has the id {directory_id}")
        open_ones = [each for each in online if not each.is_cordoned and partition not in each.logs]
        if not open_ones:
            reason = "none is open for it" if online else "all have failed"
            raise KafkaStorageError(f"no log directory takes a new log: {reason}")
        return min(open_ones, key=lambda each: len(each.logs))

    def create(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        name: str,
        topic_id: Uuid | None,
        *,
        is_future: bool = False,
    ) -> UnifiedLog:
        """Make an empty log. It is on disk when its first records are, at the latest.

        Until then it can be lost with the power, and is made anew by the next start: the metadata
        knows the partition. So a thousand partitions cost no fsync.
        """
        _require_legal(partition)
        registry = self._registry
        path = f"{directory.path}/{name}"
        try:
            with storage_errors(path, "creating the log"):
                slot = directory.new_slot(partition, name, is_future=is_future)
                registry.filesystem.make_directory(path)
                written = None
                if topic_id is not None:
                    written = write_partition_metadata(
                        registry.filesystem, path, topic_id, sync=False
                    )
                log = registry.load(slot, is_new=True)
                if written is not None:
                    log.sync_with_next_flush(written)
        except KafkaStorageError as error:
            directory.logs.pop(partition, None)
            if not registry.note_error(directory, error):
                with suppress(OSError):
                    registry.filesystem.remove_directory(path)
            raise
        registry.publish(slot, log)
        registry.add(slot)
        return log

    # Cutting.

    def truncate(self, slot: LogSlot, offset: int, log_start_offset: int | None = None) -> bool:
        """Cut a log to an offset, or with a new start drop everything; False if nothing was cut.

        The checkpoints are lowered first: after a crash they must not speak of records that other
        records have taken the place of.
        """
        registry = self._registry
        log = registry.open(slot)
        now_ms = registry.clock.wall_ms()
        with self._guarded(slot):
            if log_start_offset is None and offset >= log.log_end_offset:
                return log.truncate_to(offset, now_ms)
            log.lower_recovery_point(offset)
            self._lower_checkpoints(slot, offset)
            if log_start_offset is None:
                return log.truncate_to(offset, now_ms)
            log.truncate_fully_and_start_at(offset, now_ms, log_start_offset)
            return True

    def _lower_checkpoints(self, slot: LogSlot, offset: int) -> None:
        directory, partition = slot.directory, slot.partition
        offsets = directory.cleaner_offsets
        if offsets.get(partition, 0) > offset:
            offsets[partition] = offset
        _lower(directory.recovery_points, directory.recovery_point_table(), partition, offset)
        _lower(directory.log_starts, directory.log_start_table(), partition, offset)
        _lower(directory.cleaner_points, directory.cleaner_table(), partition, offset)

    @contextmanager
    def _guarded(self, slot: LogSlot) -> Iterator[None]:
        """No cleaning meanwhile; an error of the disk has its consequences."""
        self._registry.cleaner.pause(slot.partition)
        try:
            with storage_errors(slot.path, "truncating"):
                yield
        except KafkaStorageError as error:
            self._registry.note_error(slot.directory, error)
            raise
        finally:
            self._registry.cleaner.resume(slot.partition)

    # Going.

    def delete(self, slot: LogSlot) -> None:
        """Take a log out of service now and remove its files later."""
        delay_ms = self._registry.config_for(slot.partition.topic).file_delete_delay_ms
        self._retire(slot, "delete")
        self.remove_later(slot.directory, slot.name, delay_ms)

    def mark_stray(self, slot: LogSlot) -> None:
        """Take a log out of service and keep its files for an operator to look at."""
        self._retire(slot, "stray")
        _logger.warning("%s does not belong here; it is kept, but not used", slot.path)

    def remove_later(self, directory: LogDirectory, name: str, delay_ms: int) -> None:
        """Remove a `-delete` directory after a while."""
        path = f"{directory.path}/{name}"

        def remove() -> None:
            directory.filesystem.remove_directory(path)
            _logger.info("%s is gone", path)

        due_ms = self._registry.clock.monotonic_ms() + delay_ms
        self._tasks.removals.add(due_ms, directory, path, remove)

    def _retire(self, slot: LogSlot, state: str) -> None:
        registry = self._registry
        name = renamed_directory_name(slot.partition, Uuid.random(registry.random), state)
        if not slot.is_future:
            registry.cleaner.pause(slot.partition)
        try:
            registry.rename(slot, name)
        except KafkaStorageError:
            if not slot.is_future and slot.directory.is_online:
                registry.cleaner.resume(slot.partition)
            raise
        if slot.log is not None:
            slot.log.abandon()
        registry.remove(slot)


def _lower(
    checkpoint: OffsetCheckpoint,
    table: dict[TopicPartition, int],
    partition: TopicPartition,
    offset: int,
) -> None:
    """Write a table at once if the file on disk promises more than an offset."""
    if checkpoint.highest(partition) > offset:
        if partition in table:
            table[partition] = min(table[partition], offset)
        checkpoint.write(table)


def _require_legal(partition: TopicPartition) -> None:
    """A name that could not be read back at the next start is refused."""
    name = partition_directory_name(partition)
    parsed = parse_partition_directory_name(name)
    if parsed is None or parsed.partition != partition or parsed.state or len(name) > 255:
        raise InvalidTopic(f"{name!r} cannot be the directory of a partition")
