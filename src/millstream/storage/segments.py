"""The segments of one log, in order, found by offset without looking at all of them.

`UnifiedLog` and `LogLoader` hold one. It only keeps the list: it opens, writes and deletes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.storage.segment import LogSegment


class LogSegments:
    """Segments sorted by base offset; the last one is active. Once loaded it is never empty."""

    __slots__ = ("_base_offsets", "_segments")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._base_offsets = [segment.base_offset for segment in self._segments]

    @property
    def active(self) -> LogSegment:
        """The one that is appended to."""
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        """The oldest one."""
        return self._segments[0]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Where the segments begin, oldest first."""
        return tuple(self._base_offsets)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        """Put a segment in its place."""
        position = bisect_left(self._base_offsets, segment.base_offset)
        assert segment.base_offset not in self._base_offsets[position : position + 1]
        self._base_offsets.insert(position, segment.base_offset)
        self._segments.insert(position, segment)

    def remove(self, segments: Iterable[LogSegment]) -> None:
        """Forget some."""
        gone = {segment.base_offset for segment in segments}
        self._segments = [each for each in self._segments if each.base_offset not in gone]
        self._base_offsets = [each.base_offset for each in self._segments]

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment that begins exactly at an offset."""
        found = self.floor(base_offset)
        return found if found is not None and found.base_offset == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The last segment that begins at or before an offset."""
        position = bisect_right(self._base_offsets, offset)
        return self._segments[position - 1] if position else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The first segment that begins after another's base offset."""
        position = bisect_right(self._base_offsets, base_offset)
        return self._segments[position] if position < len(self._segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment with an offset, and all after it."""
        position = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return self._segments[position:]

    def between(self, start_offset: int, end_offset: int) -> list[LogSegment]:
        """The segments that may have records in [start_offset, end_offset)."""
        end = bisect_left(self._base_offsets, end_offset)
        return self._segments[max(bisect_right(self._base_offsets, start_offset) - 1, 0) : end]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(list(self._segments))

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, segment: object) -> bool:
        return any(each is segment for each in self._segments)
