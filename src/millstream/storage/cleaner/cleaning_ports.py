"""What the cleaner needs of those around it, and what it tells them: no behaviour.

`LogManager` is the `CleanableLogs` of a broker. `CleaningStats` goes to whoever counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.types import TopicPartition


class CleanableLogs(Protocol):
    """What the cleaner needs of the log manager."""

    def compacted_logs(self) -> list[TopicPartition]:
        """The partitions in service whose topic is compacted."""
        ...

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        """A partition's log."""
        ...

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """Up to where a log was compacted."""
        ...

    def set_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """A log is compacted up to an offset."""
        ...

    def discard_segments(self, log: UnifiedLog, segments: Iterable[LogSegment]) -> None:
        """Remove the files of segments that were replaced, after a while."""
        ...

    def note_error(self, log: UnifiedLog, error: Exception) -> bool:
        """A file of a log could not be used; whether its directory is out of service now."""
        ...


@dataclass(frozen=True, slots=True)
class CleaningStats:
    """What one pass has done."""

    partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    """The log is compacted up to here."""
    dirty_ratio: float
    """Which part of the bytes had never been compacted."""
    key_count: int
    map_bytes_read: int
    bytes_read: int
    """Bytes of the segments that were rewritten."""
    bytes_written: int
    duration_ms: int

    @property
    def size_ratio(self) -> float:
        """How large the segments are now, compared with before."""
        return self.bytes_written / self.bytes_read if self.bytes_read else 1.0
