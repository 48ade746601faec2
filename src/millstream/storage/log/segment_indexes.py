"""The three indexes of a segment, and when they get their entries.

A segment notes each batch (`SegmentIndexState.note_batch`): an entry is added when enough bytes
have gone by, and the largest timestamp so far is kept. It never reads the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument
from millstream.storage.file_names import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from millstream.storage.log.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampOffset
from millstream.storage.log.log_state import NO_TIMESTAMP, SegmentIndexState
from millstream.storage.log.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem


class SegmentIndexes(SegmentIndexState):
    """Offset, time and transaction index of one segment."""

    __slots__ = ("transactions",)

    offsets: OffsetIndex
    times: TimeIndex

    def __init__(
        self,
        filesystem: FileSystem,
        path_of: Callable[[str], str],
        base_offset: int,
        *,
        bytes_max: int,
        interval_bytes: int,
    ) -> None:
        super().__init__()
        self.offsets = OffsetIndex(filesystem, path_of(OFFSET_INDEX), base_offset, bytes_max)
        self.times = TimeIndex(filesystem, path_of(TIME_INDEX), base_offset, bytes_max)
        self.transactions = TransactionIndex(filesystem, path_of(TRANSACTION_INDEX), base_offset)
        self.interval_bytes = interval_bytes
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = base_offset

    def check(self, log_bytes: int) -> None:
        """Raise `CorruptIndex` if a file is missing or cannot belong to this log."""
        for index in (self.offsets, self.times):
            if not index.exists():
                raise CorruptIndex(f"{index.path} is missing")
        self.offsets.check(log_bytes)
        self.times.check()

    def resume(self, largest: TimestampOffset) -> None:
        """Go on with files that are there already; `largest` is of the whole log."""
        self.largest_timestamp, self.largest_offset = largest
        self.bytes_since_entry = 0
        self.is_full = self.offsets.is_full or self.times.is_full

    def clear(self) -> None:
        """Begin the sparse indexes again; aborted transactions are not in question."""
        self.offsets.clear()
        self.times.clear()
        self.resume(TimestampOffset(NO_TIMESTAMP, self.offsets.base_offset))

    def truncate_to(self, offset: int) -> None:
        """Forget what is at or after an offset; the caller finds the largest time again."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.transactions.truncate_to(offset)

    def seal(self) -> None:
        """Add the entry at the end and cut the files to their entries."""
        if self.times.entry_count < self.times.entry_count_max:
            self.times.append_if_later(self.largest_timestamp, self.largest_offset, is_last=True)
        self.offsets.seal()
        self.times.seal()

    def sync(self) -> None:
        """Bring all three to disk."""
        self.offsets.sync()
        self.times.sync()
        self.transactions.sync()

    def release(self) -> None:
        """Give back descriptors and maps."""
        self.offsets.release()
        self.times.release()

    def move_to(self, path_of: Callable[[str], str]) -> None:
        """Follow the files to other names."""
        self.offsets.move_to(path_of(OFFSET_INDEX))
        self.times.move_to(path_of(TIME_INDEX))
        self.transactions.move_to(path_of(TRANSACTION_INDEX))

    def add_entries(self, last_offset: int, position: int) -> None:
        """Add what is due to both sparse indexes, as far as they take it."""
        offsets, times = self.offsets, self.times
        try:
            if not offsets.is_full:
                offsets.append(last_offset, position)
            if not times.is_full:
                times.append_if_later(self.largest_timestamp, self.largest_offset)
        except InvalidArgument:
            # An index that was damaged may refuse what does not follow its last entry. The batch
            # is written and counts; it will be found without an entry of its own.
            pass
        self.is_full = offsets.is_full or times.is_full
