"""Moves of logs between the directories of one broker (AlterReplicaLogDirs).

A future log is made in the target directory, filled from the log in use, and takes its place when
it has everything. `LogManager` has one `LogMoves`; the broker's fetcher, or `advance`, fills it.
At every moment one directory has the partition under its plain name. A crash between the two
renames of the swap leaves two: they are equal, and the start keeps the longer one.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument, KafkaStorageError, LogDirNotFound
from millstream.storage.faults import storage_errors
from millstream.storage.file_names import partition_directory_name, renamed_directory_name
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.log.log_lifecycle import LogLifecycle
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_registry import LogRegistry
    from millstream.storage.manager.log_slot import LogSlot
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)


class LogMoves:
    """The future logs."""

    def __init__(self, registry: LogRegistry, lifecycle: LogLifecycle) -> None:
        self._registry = registry
        self._lifecycle = lifecycle

    def begin(self, partition: TopicPartition, path: str) -> UnifiedLog | None:
        """Make a future log in another directory; None if the log is there already.

        One that is being filled in a third directory is given up.
        """
        registry = self._registry
        target = registry.directories.get(path.rstrip("/"))
        if target is None:
            raise LogDirNotFound(f"{path} is none of this broker's log.dirs")
        if target.error is not None:
            raise KafkaStorageError(f"{path} is out of service: {target.error}")
        slot = registry.require(partition)
        future = registry.future.get(partition)
        if future is not None and future.directory is target:
            return registry.open(future)
        if future is not None:
            self._lifecycle.delete(future)
        if slot.directory is target:
            return None
        current = registry.open(slot)
        name = renamed_directory_name(partition, Uuid.random(registry.random), "future")
        created = self._lifecycle.create(target, partition, name, slot.topic_id, is_future=True)
        if current.log_start_offset:
            created.truncate_fully_and_start_at(current.log_start_offset, registry.clock.wall_ms())
        return created

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """What is being moved, or was by the last process."""
        return tuple(self._registry.future)

    def resume(self, partition: TopicPartition) -> bool:
        """Make ready to go on with a move of the last process; False if that cannot be.

        A power loss may have taken more from the log in use than from the future one: what only
        that has is cut off, because other records will have those offsets. Without the log in use,
        whose directory has failed, the future one stays as it is.
        """
        registry = self._registry
        slot = registry.current.get(partition)
        if slot is None:
            _logger.warning("%s is not moved on: its log is not in service", partition)
            return False
        end_offset = registry.open(slot).log_end_offset
        self._lifecycle.truncate(registry.future[partition], end_offset)
        return True

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        """The future log of a partition."""
        slot = self._registry.future.get(partition)
        return None if slot is None else self._registry.open(slot)

    def cancel(self, partition: TopicPartition) -> bool:
        """Give a move up; False if there is none."""
        slot = self._registry.future.get(partition)
        if slot is None:
            return False
        self._lifecycle.delete(slot)
        return True

    def advance(self, partition: TopicPartition, bytes_max: int) -> int:
        """Copy up to so many bytes into the future log; how many offsets it is behind now."""
        source, target = self._pair(partition)
        start_offset = max(target.log_end_offset, source.log_start_offset)
        with self._watching(source), storage_errors(source.directory, "reading"):
            found = source.read(start_offset, bytes_max)
            records = b"" if found.records is None else found.records.read()
        now_ms = self._registry.clock.wall_ms()
        with self._watching(target):
            if target.log_end_offset < start_offset:
                target.truncate_fully_and_start_at(start_offset, now_ms)
            if records:
                target.append_as_follower(records, source.epochs.latest_epoch, now_ms)
            target.update_high_watermark(source.high_watermark)
            if source.log_start_offset <= target.high_watermark:
                target.raise_log_start_offset(source.log_start_offset)
        return source.log_end_offset - target.log_end_offset

    def finish(self, partition: TopicPartition) -> UnifiedLog:
        """Put the future log in the place of the log in use, which is deleted."""
        registry = self._registry
        source, target = self._pair(partition)
        if target.log_end_offset != source.log_end_offset:
            raise InvalidArgument(
                f"the future log of {partition} ends at {target.log_end_offset}, the log in use at "
                f"{source.log_end_offset}: it cannot take its place yet"
            )
        old, new = registry.current[partition], registry.future[partition]
        registry.cleaner.pause(partition)
        cleaner_offset = old.directory.cleaner_offsets.get(partition)
        try:
            with self._watching(target):
                # Everything the old log had on disk must be there in the new one as well.
                target.flush()
                registry.rename(new, partition_directory_name(partition))
        except KafkaStorageError:
            registry.cleaner.resume(partition)
            raise
        del registry.future[partition]
        new.is_future = False
        self._let_go(old)
        registry.offline.pop(partition, None)
        registry.add(new)
        if cleaner_offset is not None:
            new.directory.cleaner_offsets[partition] = cleaner_offset
        _logger.info("%s has moved from %s to %s", partition, old.directory.path, new.path)
        return target

    @contextmanager
    def _watching(self, log: UnifiedLog) -> Iterator[None]:
        """An error of the disk has its consequences for the directory of the log it hit."""
        directory = self._registry.directory_of(log)
        try:
            yield
        except KafkaStorageError as error:
            self._registry.note_error(directory, error)
            raise

    def _let_go(self, old: LogSlot) -> None:
        """The partition is safe elsewhere, so an old directory that fails now is no reason."""
        try:
            self._lifecycle.delete(old)
        except KafkaStorageError as error:
            _logger.warning("%s stays until the next start: %s", old.path, error)
            if old.log is not None:
                old.log.abandon()
            self._registry.remove(old)

    def _pair(self, partition: TopicPartition) -> tuple[UnifiedLog, UnifiedLog]:
        future = self._registry.future.get(partition)
        if future is None:
            raise InvalidArgument(f"{partition} is not being moved")
        return self._registry.open(self._registry.require(partition)), self._registry.open(future)


def choose_between(registry: LogRegistry, one: LogSlot, other: LogSlot) -> tuple[LogSlot, LogSlot]:
    """Two directories have the same partition: the one to keep, and the other.

    That is what a crash in the middle of `finish` leaves, or somebody who copies files.
    """

    def length(slot: LogSlot) -> tuple[int, int]:
        try:
            log = registry.open(slot)
        except KafkaStorageError:
            return (-1, -1)
        return (log.epochs.latest_epoch, log.log_end_offset)

    return (one, other) if length(one) >= length(other) else (other, one)
