"""Which leader epoch began at which offset of one log.

`UnifiedLog` asks it where an epoch ended (to find where two replicas part) and tells it about new
epochs; it keeps `leader-epoch-checkpoint` in step. Epochs and start offsets both increase strictly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.storage.checkpoint import LEADER_EPOCH_FILE, read_numbers, write_numbers
from millstream.storage.log.log_state import EpochState

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache(EpochState):
    """The epochs of one log, in memory and in its checkpoint file."""

    __slots__ = ("_filesystem", "_is_needed", "_path")

    _entries: list[EpochEntry]

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        super().__init__()
        self._filesystem = filesystem
        self._path = f"{directory}/{LEADER_EPOCH_FILE}"
        # Whether records depend on what the checkpoint lacks; not if an epoch has merely begun.
        self._is_needed = False

    @classmethod
    def load(cls, filesystem: FileSystem, directory: str) -> LeaderEpochCache:
        """Read the checkpoint; a table that does not increase is an error."""
        cache = cls(filesystem, directory)
        for entry in read_numbers(filesystem, cache._path, columns=2):
            latest = cache.latest
            if latest is not None and (entry[0] <= latest.epoch or entry[1] <= latest.start_offset):
                raise KafkaStorageError(
                    f"{cache._path} is corrupt: epoch {entry[0]} at offset {entry[1]} "
                    f"follows epoch {latest.epoch} at offset {latest.start_offset}"
                )
            cache._entries.append(EpochEntry(*entry))
        return cache

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> EpochEntry | None:
        """The newest epoch."""
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> int:
        """The newest epoch's number, or -1."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that an epoch begins; entries that contradict it go. On disk when it returns.

        Returns whether anything changed. A later batch of the newest epoch changes nothing.
        """
        is_changed = self.assign_in_memory(epoch, start_offset)
        self.flush_if_dirty()
        return is_changed

    def assign_in_memory(self, epoch: int, start_offset: int) -> bool:
        """The same without the disk: for recovery, which flushes once at its end."""
        is_changed = self._assign(epoch, start_offset)
        self._is_needed = self._is_needed or is_changed
        return is_changed

    def begin(self, epoch: int, end_offset: int) -> None:
        """A leadership begins at the log's end: the checkpoint hears of it with the first record.

        `is_dirty` sees to that. If the process ends before, an epoch without records is forgotten,
        which changes nothing: whoever leads next has a later one, and no replica ever saw this.
        """
        if epoch > self.latest_epoch:
            self._assign(epoch, end_offset)

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise InvalidArgument(f"leader epoch {epoch} at offset {start_offset}: neither is < 0")
        latest = self.latest
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self.is_dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where an epoch ended in this log; `UNDEFINED_END` if the log does not know."""
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_END
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self._entries, epoch, key=_epoch_of)
        if following == len(self._entries):
            return UNDEFINED_END
        end_offset = self._entries[following].start_offset
        floor_epoch = epoch if following == 0 else self._entries[following - 1].epoch
        return EpochEnd(floor_epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of the record at an offset."""
        following = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[following - 1].epoch if following else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The newest epoch before another."""
        position = bisect_left(self._entries, epoch, key=_epoch_of)
        return self._entries[position - 1].epoch if position else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that begin at or after an offset, in memory: the log was cut there.

        The caller flushes when it suits; a stale entry on disk is cut again at the next start.
        """
        kept = bisect_left(self._entries, end_offset, key=_start_of)
        if end_offset < 0 or kept == len(self._entries):
            return False
        del self._entries[kept:]
        self.is_dirty = self._is_needed = True
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget the epochs that ended before an offset; the one it is in begins there now."""
        following = bisect_right(self._entries, start_offset, key=_start_of)
        if following == 0 or self._entries[0].start_offset == start_offset:
            return False
        self._entries[:following] = [EpochEntry(self._entries[following - 1].epoch, start_offset)]
        self.is_dirty = self._is_needed = True
        return True

    def clear(self) -> None:
        """Forget everything, in memory."""
        self.is_dirty = self._is_needed = self.is_dirty or bool(self._entries)
        self._entries.clear()

    def flush(self) -> None:
        """Write the checkpoint."""
        write_numbers(self._filesystem, self._path, self._entries)
        self.is_dirty = self._is_needed = False

    def flush_if_needed(self) -> None:
        """Write the checkpoint unless only an epoch without records is missing there."""
        if self._is_needed:
            self.flush()

    def flush_if_dirty(self) -> None:
        """Write the checkpoint if it is not up to date; one that failed is tried again."""
        if self.is_dirty:
            self.flush()

    def move_to(self, directory: str) -> None:
        """Follow a log whose directory was renamed."""
        self._path = f"{directory}/{LEADER_EPOCH_FILE}"


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset
