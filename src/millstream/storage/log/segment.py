"""One segment of a log: a `.log` file of batches and the indexes that find things in it.

`UnifiedLog` owns the segments of a partition and appends to the last one. A segment knows bytes,
offsets and timestamps; it knows no producers, no epochs and no high watermark. Opening one costs
nothing: files are opened and mapped when they are first needed. Not thread-safe, except that
`sync_log` may run on a worker thread while the owner appends.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from millstream.errors import CorruptMessage
from millstream.storage.log.batch_scan import (
    HEAD_WINDOW_BYTES,
    find_head,
    head_at,
    last_offset_before,
    scan_batches,
    scan_good_batches,
    scan_heads,
)
from millstream.storage.log.index import CorruptIndex, TimestampOffset
from millstream.storage.log.log_state import NO_TIMESTAMP, UNREAD, SegmentState
from millstream.storage.log.segment_files import SegmentFiles
from millstream.storage.log.segment_indexes import SegmentIndexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.records.batch import RecordBatch
    from millstream.records.legacy import LegacyBatch
    from millstream.storage.filesystem import File, FileSystem
    from millstream.storage.log.batch_scan import BatchAt, BatchHead
    from millstream.storage.log.config import LogConfig

    AnyBatch: TypeAlias = RecordBatch | LegacyBatch

_logger = logging.getLogger(__name__)


class LogSegment(SegmentState):
    """The records from `base_offset` on, up to `size` bytes of file."""

    __slots__ = ("_files", "_is_rebuilt", "roll_jitter_ms")

    indexes: SegmentIndexes

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        created_ms: int,
        suffix: str = "",
        roll_jitter_ms: int = 0,
    ) -> None:
        """A segment whose files exist, with a log of `size` valid bytes. Touches nothing."""
        super().__init__()
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._files = SegmentFiles(filesystem, directory, base_offset, suffix)
        self._is_rebuilt = False
        self.indexes = SegmentIndexes(
            filesystem,
            self._files.path,
            base_offset,
            bytes_max=config.segment_index_bytes,
            interval_bytes=config.index_interval_bytes,
        )
        self.update_config(config)

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
        roll_jitter_ms: int = 0,
    ) -> LogSegment:
        """A new, empty segment; files of the same name are leftovers and go."""
        segment = cls(
            filesystem,
            directory,
            base_offset,
            config,
            size=0,
            created_ms=now_ms,
            suffix=suffix,
            roll_jitter_ms=roll_jitter_ms,
        )
        segment.file = segment._files.create_log(config)
        segment.is_changed = segment.is_ready = True
        return segment

    def make_ready(self) -> None:
        """Open the log file, and look at the indexes and at the first timestamp."""
        self.open_file()
        self.ready_indexes()
        if self.first_timestamp == UNREAD and self.size:
            self.read_first_timestamp()

    def read_first_timestamp(self) -> None:
        """Find out how old the first batch is, by its own time."""
        first = next(self.heads(), None)
        # Every negative time means that it has none.
        self.first_timestamp = max(NO_TIMESTAMP if first is None else first.max_timestamp, -1)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings; the size of the index files stays what it is."""
        self.size_max = config.segment_size_max
        age_max_ms = config.segment_ms
        if config.is_compacted and config.max_compaction_lag_ms:
            # The active segment is not compacted, so it ends in time for that.
            age_max_ms = min(age_max_ms, config.max_compaction_lag_ms)
        self.age_max_ms = age_max_ms - self.roll_jitter_ms
        self.indexes.interval_bytes = config.index_interval_bytes

    def find_batch(self, offset: int) -> BatchHead | None:
        """The first batch that ends at or after an offset."""
        try:
            return self._find(offset)
        except (CorruptIndex, CorruptMessage) as error:
            if not self.distrust_indexes(error):
                raise
            return self.find_batch(offset)

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch; (-1, base) if unknown."""
        indexes = self.ready_indexes()
        return TimestampOffset(indexes.largest_timestamp, indexes.largest_offset)

    def time_entry_before(self, timestamp: int) -> TimestampOffset:
        """The time index's last entry that is not later; (-1, base) if there is none."""
        return self.ready_indexes().times.lookup(timestamp)

    def open_file(self) -> File:
        """The log file; it stays open until `release`."""
        file = self.file
        if file is None:
            file = self.file = self._files.open_log()
        return file

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """The whole batches from a position on, checksums unchecked."""
        return scan_batches(self.open_file(), position, self.size)

    def heads(self, position: int = 0) -> Iterator[BatchHead]:
        """The heads of the batches from a position on."""
        return scan_heads(self.open_file(), position, self.size)

    def upper_bound_offset(self, position: int) -> int | None:
        """An offset at or after everything before a position; None: the segment's end."""
        entry = self.ready_indexes().offsets.first_at_or_after(position)
        return None if entry is None else entry.offset

    def read_next_offset(self) -> int:
        """The offset after the last record, or CorruptMessage if not all bytes are batches."""
        if self.size == 0:
            return self.base_offset
        hint = self.ready_indexes().offsets.last_entry.position
        with suppress(CorruptMessage):
            return last_offset_before(self.open_file(), hint, self.size) + 1
        return last_offset_before(self.open_file(), 0, self.size) + 1

    def recover(
        self,
        on_batch: Callable[[AnyBatch], None] | None = None,
        before_cut: Callable[[int], None] | None = None,
    ) -> int:
        """Verify every batch, cut at the first bad one, rebuild the indexes; the bytes cut.

        `on_batch` sees each good batch in order; it may add aborted transactions. `before_cut`
        hears where the first bad one is, and may raise instead.
        """
        self.indexes.transactions.clear()
        valid_bytes = self._rescan(on_batch, is_verifying=True)
        cut = self.size - valid_bytes
        if cut:
            if before_cut is not None:
                before_cut(valid_bytes)
            _logger.warning("cutting %d bytes off %s at %d", cut, self._files.log_path, valid_bytes)
            self.size = valid_bytes
            self.open_file().truncate(valid_bytes)
        return cut

    def rebuild_indexes(self) -> None:
        """Make both sparse indexes anew from the log, which is not changed."""
        self._rescan(None, is_verifying=False)

    def distrust_indexes(self, error: Exception) -> bool:
        """Rebuild the indexes because they contradict the log; False if that was tried before."""
        if self._is_rebuilt:
            return False
        _logger.warning("rebuilding the indexes of %s: %s", self._files.log_path, error)
        self._is_rebuilt = True
        self.rebuild_indexes()
        return True

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut the batch that has an offset and everything after it; the bytes cut."""
        head = self.find_batch(offset)
        self.indexes.truncate_to(offset)
        self.is_changed = True
        cut = 0
        if head is not None:
            cut = self.size - head.position
            self.size = head.position
            self.open_file().truncate(self.size)
        if self.size == 0:
            self.created_ms, self.first_timestamp = now_ms, UNREAD
        largest = self.indexes.times.last_entry
        for kept in self._heads_from(largest.offset):
            if kept.max_timestamp > largest.timestamp:
                largest = TimestampOffset(kept.max_timestamp, kept.last_offset)
        self.indexes.resume(largest)
        return cut

    def sync_log(self) -> None:
        """Bring the records, and the file's name, to disk. May run on a worker thread."""
        self.open_file().sync()
        self._files.sync_name()

    def sync(self) -> None:
        """Bring the records and all indexes to disk."""
        self.indexes.sync()
        self.sync_log()

    def seal(self) -> None:
        """No more appends for now: finish the indexes and cut all files to their content."""
        if not self.is_changed:
            return
        self.open_file().trim(self.size)
        self.ready_indexes().seal()
        self.is_changed = False

    def release(self) -> None:
        """Give back descriptors and maps; slices handed out keep theirs. Use goes on."""
        self.file = None
        self.indexes.release()

    def close(self) -> None:
        """`seal`, then `release`."""
        self.seal()
        self.release()

    def change_suffix(self, suffix: str) -> None:
        """Rename all files, such as to `.deleted`; the caller syncs the directory."""
        self.indexes.release()
        self._files.change_suffix(suffix)
        self.indexes.move_to(self._files.path)

    def delete_files(self) -> None:
        """Remove all files; slices handed out stay readable."""
        self._files.remove()
        self.file = None

    def move_to(self, directory: str) -> None:
        """Follow a log whose directory was renamed."""
        self._files.move_to(directory)
        self.indexes.move_to(self._files.path)

    def _heads_from(self, offset: int) -> Iterator[BatchHead]:
        """The heads from the batch of an offset on."""
        first = self.find_batch(offset)
        return self.heads(self.size if first is None else first.position)

    def ready_indexes(self) -> SegmentIndexes:
        """The indexes; the first use of an existing segment has a look at them."""
        if not self.is_ready:
            self.is_ready = True
            if self.size == 0:
                self.indexes.clear()
                return self.indexes
            try:
                self.indexes.check(self.size)
                self.indexes.resume(self._indexed_largest())
            except (CorruptIndex, CorruptMessage) as error:
                self.distrust_indexes(error)
        return self.indexes

    def _find(self, offset: int) -> BatchHead | None:
        indexes = self.indexes if self.is_ready else self.ready_indexes()
        before, position, after, position_after = indexes.offsets.around(offset)
        if position < 0:
            raise CorruptIndex(f"{indexes.offsets.path} has an entry at position {position}")
        file = self.open_file()
        if before < offset and position_after - position > HEAD_WINDOW_BYTES:
            # An entry has the last offset of its batch. Where batches are large each has one, and
            # the one after an offset is that of its batch.
            head = head_at(file, position_after, self.size)
            if head is not None and head.base_offset <= offset <= head.last_offset == after:
                return head
        # An entry that points elsewhere would hide batches, so what it says is checked.
        hint = (self.base_offset, before) if position else None
        return find_head(file, position, self.size, offset, hint)

    def _indexed_largest(self) -> TimestampOffset:
        """The last time entry: a sealed segment has its largest time there."""
        largest = self.indexes.times.last_entry
        head = self._find(largest.offset)
        if head is None or head.max_timestamp != largest.timestamp:
            raise CorruptIndex(f"{self.indexes.times.path} does not match its log")
        return largest

    def _rescan(
        self,
        on_batch: Callable[[AnyBatch], None] | None,
        *,
        is_verifying: bool,
    ) -> int:
        """Walk the log and note every batch; the end of the last good one."""
        self.indexes.clear()
        self.is_ready = self.is_changed = True
        end = 0
        found = scan_good_batches(
            self.open_file(), self.size, self.base_offset, is_verifying=is_verifying
        )
        for position, batch in found:
            if on_batch is not None:
                on_batch(batch)
            self.indexes.note_batch(position, batch.size, batch.last_offset, batch.max_timestamp)
            end = position + batch.size
        return end
