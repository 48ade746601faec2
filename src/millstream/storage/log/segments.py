"""The segments of one log, in order, found by offset without looking at all of them.

`UnifiedLog` and `loader` hold one. It only keeps the list: it opens, writes and deletes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from millstream.storage.log.log_state import SegmentList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.storage.log.segment import LogSegment


class LogSegments(SegmentList):
    """Segments sorted by base offset; the last one is active. Once loaded it is never empty."""

    __slots__ = ()

    segments: list[LogSegment]

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        super().__init__()
        self.segments = sorted(segments, key=lambda segment: segment.base_offset)
        self.bases = [segment.base_offset for segment in self.segments]

    @property
    def active(self) -> LogSegment:
        """The one that is appended to."""
        return self.segments[-1]

    @property
    def first(self) -> LogSegment:
        """The oldest one."""
        return self.segments[0]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Where the segments begin, oldest first."""
        return tuple(self.bases)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(segment.size for segment in self.segments)

    def add(self, segment: LogSegment) -> None:
        """Put a segment in its place."""
        position = bisect_left(self.bases, segment.base_offset)
        assert segment.base_offset not in self.bases[position : position + 1]
        self.bases.insert(position, segment.base_offset)
        self.segments.insert(position, segment)

    def remove(self, segments: Iterable[LogSegment]) -> None:
        """Forget some."""
        gone = {segment.base_offset for segment in segments}
        self.segments = [each for each in self.segments if each.base_offset not in gone]
        self.bases = [each.base_offset for each in self.segments]

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment that begins exactly at an offset."""
        found = self.floor(base_offset)
        return found if found is not None and found.base_offset == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The last segment that begins at or before an offset."""
        position = bisect_right(self.bases, offset)
        return self.segments[position - 1] if position else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The first segment that begins after another's base offset."""
        position = bisect_right(self.bases, base_offset)
        return self.segments[position] if position < len(self.segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment with an offset, and all after it."""
        position = max(bisect_right(self.bases, offset) - 1, 0)
        return self.segments[position:]

    def between(self, start_offset: int, end_offset: int) -> list[LogSegment]:
        """The segments that may have records in [start_offset, end_offset)."""
        end = bisect_left(self.bases, end_offset)
        return self.segments[max(bisect_right(self.bases, start_offset) - 1, 0) : end]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self.segments))

    def __len__(self) -> int:
        return len(self.segments)

    def __contains__(self, segment: object) -> bool:
        return any(each is segment for each in self.segments)
