"""The sparse indexes of a segment: offset to position, and timestamp to offset.

A `LogSegment` owns one of each. Entries are fixed-size, sorted and big-endian, as in Kafka; they
carry no checksum, so the segment treats what they say as a hint. While entries are added the file
has its full size with zeros behind them; `seal` cuts them off. It is written with `pwrite` and read
through a map, and neither exists before it is needed. Only one thread may use an index.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from millstream.errors import InvalidArgument, MillstreamError
from millstream.storage.log.log_state import RELATIVE_OFFSET_MAX, UNKNOWN, IndexState

if TYPE_CHECKING:
    from millstream.storage.filesystem import File, FileMap, FileSystem, MappedBuffer

PENDING_BYTES_MAX: Final = 4096
"""New entries go to the file when there are so many."""
_NEAR_SLOTS: Final = 8

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class CorruptIndex(MillstreamError):
    """An index file that cannot be one; the segment rebuilds it from the log."""


class OffsetPosition(NamedTuple):
    """A batch whose last offset is `offset` begins at `position`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """The largest timestamp up to a record, and that record's offset."""

    timestamp: int
    offset: int


class SparseIndex(IndexState):
    """What both indexes share: the file, its map, its size, the binary search.

    New entries wait in memory and go to the file some hundred at a time. A crash loses them
    with no harm: the segment they belong to is recovered, and its indexes are rebuilt.
    """

    __slots__ = ("_file", "_filesystem", "_map", "path")

    ENTRY_BYTES: ClassVar[int]

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int, bytes_max: int) -> None:
        # Fewer than two and the segment would roll before every batch.
        super().__init__(base_offset, max(bytes_max // self.ENTRY_BYTES, 2))
        self.path = path
        self._filesystem = filesystem
        self._file: File | None = None
        self._map: FileMap | None = None

    @property
    def entry_count(self) -> int:
        """How many entries there are; the first question reads the file's size."""
        if self.known_count == UNKNOWN:
            self._load()
        return self.known_count

    def exists(self) -> bool:
        """Whether there is a file."""
        return self._filesystem.exists(self.path)

    def seal(self) -> None:
        """Cut the file to its entries and let go of it; without entries it is an empty file."""
        count = self.entry_count
        self._write_pending()
        self._unmap()
        file = self._file or self._filesystem.open(self.path, create=True)
        file.truncate(count * self.ENTRY_BYTES)
        self._file = None

    def sync(self) -> None:
        """Bring the file to disk, if there is one."""
        self._write_pending()
        file = self._file
        if file is None and self.exists():
            file = self._filesystem.open(self.path)
        if file is not None:
            file.sync()

    def clear(self) -> None:
        """Begin again without entries: to rebuild."""
        self.pending.clear()
        self.last = None
        self._unmap()
        self._file = None
        if self.exists():
            self._filesystem.open(self.path).truncate(0)
        self.known_count = 0

    def release(self) -> None:
        """Give back the map and the descriptor; the next use takes new ones."""
        self._write_pending()
        self._unmap()
        self._file = None

    def move_to(self, path: str) -> None:
        """Follow the file to another name."""
        self.release()
        self.path = path

    def _load(self) -> None:
        try:
            size = self._filesystem.open(self.path).size()
        except FileNotFoundError:
            size = 0
        if size % self.ENTRY_BYTES:
            raise CorruptIndex(
                f"{self.path} has {size} bytes, not a multiple of {self.ENTRY_BYTES}"
            )
        self.known_count = size // self.ENTRY_BYTES

    def _append_entry(self, entry: bytes, last: tuple[int, int]) -> None:
        self.pending += entry
        self.last = last
        self.known_count += 1
        if len(self.pending) >= PENDING_BYTES_MAX:
            # A disk that has no room for hints need not refuse records: try again later.
            with suppress(OSError):
                self._write_pending()

    def _write_pending(self) -> None:
        if self.pending:
            if self._file is None:
                self._open_for_append()
            assert self._file is not None
            end = self.known_count * self.ENTRY_BYTES
            self._file.pwrite(self.pending, end - len(self.pending))
            self.pending = bytearray()

    def _open_for_append(self) -> None:
        self._unmap()
        file = self._filesystem.open(self.path, create=True)
        full_bytes = max(self.entry_count_max, self.known_count) * self.ENTRY_BYTES
        if file.size() != full_bytes:
            file.truncate(full_bytes)
        self._file = file

    def _buffer(self) -> MappedBuffer:
        """The entries in the file; only asked for when there are some."""
        if self._map is None:
            file = self._file or self._filesystem.open(self.path)
            self._map = file.map(file.size())
            self.mapped = self._map.buffer
        return self._map.buffer

    def _unmap(self) -> None:
        if self._map is not None:
            self.mapped = None
            self._map.close()
            self._map = None

    def _entry_bytes(self, entry: Struct, slot: int) -> tuple[int, int]:
        """One entry's two numbers, from the file or from memory."""
        position = slot * self.ENTRY_BYTES
        first_pending = self.known_count * self.ENTRY_BYTES - len(self.pending)
        found: tuple[int, int]
        if position >= first_pending:
            found = entry.unpack_from(self.pending, position - first_pending)
        else:
            found = entry.unpack_from(self._buffer(), position)
        return found

    def _last_at_most(self, field: Struct, shift: int, target: int) -> int:
        """The last slot whose field (sorted, at `shift` in the entry) is <= target, or -1."""
        count = self.entry_count
        pending_count = len(self.pending) // self.ENTRY_BYTES
        written_count = count - pending_count
        if pending_count and field.unpack_from(self.pending, shift)[0] <= target:
            return written_count + self._search(self.pending, pending_count, field, shift, target)
        if not written_count:
            return -1
        return self._search(self._buffer(), written_count, field, shift, target)

    def _search(
        self, buffer: MappedBuffer | bytearray, count: int, field: Struct, shift: int, target: int
    ) -> int:
        stride = self.ENTRY_BYTES
        unpack = field.unpack_from
        # Readers at the end of the log ask most often.
        last = unpack(buffer, (count - 1) * stride + shift)[0]
        if last <= target:
            return count - 1
        low, high = 0, count - 1
        # What is sorted is mostly even, too: the answer is near where it would be then.
        near = target * high // last if target > 0 else 0
        if unpack(buffer, near * stride + shift)[0] <= target:
            low = near + 1
            near += _NEAR_SLOTS
            if near < high and unpack(buffer, near * stride + shift)[0] > target:
                high = near
        else:
            high = near
            near -= _NEAR_SLOTS
            if near > 0 and unpack(buffer, near * stride + shift)[0] <= target:
                low = near + 1
        while low < high:
            middle = (low + high) >> 1
            if unpack(buffer, middle * stride + shift)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _keep(self, entry_count: int) -> None:
        """Forget the entries from a slot on; what lies behind in the file is overwritten."""
        dropped_bytes = (self.entry_count - entry_count) * self.ENTRY_BYTES
        if dropped_bytes > 0:
            del self.pending[max(len(self.pending) - dropped_bytes, 0) :]
            self.last = None
            self.known_count = entry_count

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= RELATIVE_OFFSET_MAX:
            raise InvalidArgument(f"{self.path}: offset {offset} is too far from the base offset")
        return relative


class OffsetIndex(SparseIndex):
    """Offset to position: where to begin to look for a record."""

    __slots__ = ()

    ENTRY_BYTES: ClassVar[int] = _OFFSET_ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry."""
        return self.entry_count >= self.entry_count_max

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry, or the beginning of the segment."""
        last = self.last
        if last is None:
            count = self.entry_count
            last = self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)
        return OffsetPosition(*last)

    def entry(self, slot: int) -> OffsetPosition:
        """One entry by its number."""
        relative, position = self._entry_bytes(_OFFSET_ENTRY, slot)
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets increase strictly."""
        count = self.entry_count
        if count >= self.entry_count_max:
            raise InvalidArgument(f"{self.path} is full ({count} entries)")
        last_offset, _ = self.last or self.last_entry
        if count and offset <= last_offset:
            raise InvalidArgument(f"{self.path}: offset {offset} does not follow {last_offset}")
        entry = _OFFSET_ENTRY.pack(self._relative(offset), position)
        self._append_entry(entry, (offset, position))

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or before an offset, or the beginning of the segment."""
        slot = self._last_at_most(_INT32, 0, offset - self.base_offset)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def around(self, offset: int) -> tuple[int, int, int, int]:
        """`lookup`, and the entry after that one: two offsets and positions, -1 if it has none."""
        base_offset = self.base_offset
        slot = self._last_at_most(_INT32, 0, offset - base_offset)
        before, position = self._entry_bytes(_OFFSET_ENTRY, slot) if slot >= 0 else (0, 0)
        if slot + 1 >= self.entry_count:
            return base_offset + before, position, -1, -1
        after, position_after = self._entry_bytes(_OFFSET_ENTRY, slot + 1)
        return base_offset + before, position, base_offset + after, position_after

    def raw_entries(self) -> tuple[MappedBuffer | bytearray, int, bytearray]:
        """All entries as they are written: those in the file, how many, and those in memory."""
        pending = self.pending
        count = self.entry_count - len(pending) // self.ENTRY_BYTES
        return self._buffer() if count else pending, count, pending

    def first_at_or_after(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch begins at a position or later: an upper bound."""
        slot = self._last_at_most(_INT32, 4, position - 1) + 1
        return self.entry(slot) if slot < self.entry_count else None

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or after an offset."""
        self._keep(self._last_at_most(_INT32, 0, offset - 1 - self.base_offset) + 1)

    def check(self, log_bytes: int) -> None:
        """Raise `CorruptIndex` if the file cannot belong to a log of this size."""
        if self.entry_count == 0:
            return
        first, last = self.entry(0), self.last_entry
        if last.offset < self.base_offset or not 0 < last.position < log_bytes:
            raise CorruptIndex(
                f"{self.path}: the last entry is offset {last.offset} at position {last.position}, "
                f"the segment begins at {self.base_offset} and has {log_bytes} bytes"
            )
        if first.offset > last.offset or first.position > last.position:
            raise CorruptIndex(f"{self.path}: the entries are not in order")


class TimeIndex(SparseIndex):
    """Timestamp to offset: all records before the offset are not later than the timestamp."""

    __slots__ = ()

    ENTRY_BYTES: ClassVar[int] = _TIME_ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll: the last slot is kept for the entry at the end."""
        return self.entry_count >= self.entry_count_max - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or "nothing known" at the base offset."""
        last = self.last
        if last is None:
            count = self.entry_count
            last = self.entry(count - 1) if count else TimestampOffset(-1, self.base_offset)
        return TimestampOffset(*last)

    def entry(self, slot: int) -> TimestampOffset:
        """One entry by its number."""
        timestamp, relative = self._entry_bytes(_TIME_ENTRY, slot)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def append_if_later(self, timestamp: int, offset: int, *, is_last: bool = False) -> None:
        """Add an entry unless its timestamp is known already; the last may use the kept slot."""
        last_timestamp, last_offset = self.last or self.last_entry
        if timestamp <= last_timestamp:
            return
        count = self.entry_count
        if count >= self.entry_count_max - (not is_last):
            raise InvalidArgument(f"{self.path} is full ({count} entries)")
        if offset < last_offset:
            raise InvalidArgument(f"{self.path}: offset {offset} does not follow {last_offset}")
        entry = _TIME_ENTRY.pack(timestamp, self._relative(offset))
        self._append_entry(entry, (timestamp, offset))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry not later than a timestamp, or the beginning of the segment."""
        slot = self._last_at_most(_INT64, 0, timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or after an offset."""
        self._keep(self._last_at_most(_INT32, 8, offset - 1 - self.base_offset) + 1)

    def check(self) -> None:
        """Raise `CorruptIndex` if the file cannot belong to this segment."""
        if self.entry_count == 0:
            return
        first, last = self.entry(0), self.last_entry
        if last.offset < self.base_offset or first > last or first.offset > last.offset:
            raise CorruptIndex(f"{self.path}: the entries are not in order")
