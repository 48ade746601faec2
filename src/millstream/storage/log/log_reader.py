"""Reads of one partition's log: by offset, by time, and the transactions a reader must skip.

`UnifiedLog` asks, with the bounds already decided. What a read costs does not depend on how long
the log is. It never changes the log.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import InvalidArgument
from millstream.storage.filesystem import FileSlice
from millstream.storage.log.aborted_checkpoint import write_aborted
from millstream.storage.log.batch_finder import find_place
from millstream.storage.log.epoch_cache import UNDEFINED_EPOCH
from millstream.storage.log.log_results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    FetchData,
    OffsetMetadata,
)
from millstream.storage.log.time_lookup import TimedRecord, find_by_timestamp

if TYPE_CHECKING:
    from millstream.storage.log.epoch_cache import LeaderEpochCache
    from millstream.storage.log.local_log import LocalLog
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.transaction_index import AbortedTransaction

    _Place: TypeAlias = tuple[LogSegment, int, int]
    """Where the batch is that has an offset, and how long; 0 if it was not there yet."""

_UNKNOWN: Final = TimedRecord(NO_TIMESTAMP, -1, UNDEFINED_EPOCH)
_PLACES_KEPT: Final = 16
"""Where the watermarks are, and where a few readers go on; several of them often at one place."""


class LogReader:
    """Looks things up in the segments of one log."""

    __slots__ = ("_aborted_bases", "_local", "_places")

    def __init__(self, local: LocalLog, aborted_base_offsets: list[int]) -> None:
        self._local = local
        # Most logs have no aborted transactions, so only segments that had one are asked.
        self._aborted_bases = aborted_base_offsets
        local.tail.has_aborted = bool(aborted_base_offsets)
        # By offset, the oldest first. A reader that waited at the end goes on there later.
        self._places: dict[int, _Place] = {}

    def read(
        self,
        offset: int,
        bytes_max: int,
        bound: int,
        *,
        must_progress: bool,
        with_aborted: bool,
    ) -> FetchData:
        """The bytes from an offset on, before a bound."""
        if offset >= bound:
            found = FetchData(self.locate(offset), None)
        else:
            found = self._read(offset, bytes_max, bound, must_progress=must_progress)
        if not with_aborted:
            return found
        aborted = () if found.records is None else self._aborted_within(found)
        return found._replace(aborted_transactions=tuple(aborted))

    def _read(self, offset: int, bytes_max: int, bound: int, *, must_progress: bool) -> FetchData:
        """The bytes from the batch with an offset on, from one segment and before a bound."""
        segment, position, batch_bytes = self._places.get(offset) or self._find(offset)
        length = segment.size - position
        if not batch_bytes and not 0 < length <= bytes_max:
            # Noted at the end: the next batch went to another segment, or its length matters.
            segment, position, batch_bytes = self._find(offset)
            length = segment.size - position
        if bound < self._local.log_end_offset:
            length = self._length_before(bound, segment, position)
        is_incomplete = False
        if length > bytes_max:
            # Bounds are between batches, so only a limit of bytes can cut one.
            length = min(length, max(bytes_max, batch_bytes)) if must_progress else bytes_max
            is_incomplete = length < batch_bytes
        start = OffsetMetadata(offset, segment.base_offset, position)
        if length <= 0:
            return FetchData(start, None)
        return FetchData(start, FileSlice(segment.open_file(), position, length), is_incomplete)

    def _length_before(self, bound: int, segment: LogSegment, position: int) -> int:
        """How many bytes a segment has from a position on and before a bound."""
        end = self.locate(bound)
        if end.segment_base_offset == segment.base_offset:
            return end.position - position
        return segment.size - position if end.segment_base_offset > segment.base_offset else 0

    def locate(self, offset: int) -> OffsetMetadata:
        """Where an offset is in the files."""
        segment, position, _ = self._places.get(offset) or self._find(offset)
        return OffsetMetadata(offset, segment.base_offset, position)

    def _find(self, offset: int) -> _Place:
        """Look for an offset, and remember where it is."""
        local, places = self._local, self._places
        place = None
        segment = local.segments.floor(offset) if offset < local.log_end_offset else None
        while segment is not None and place is None:
            found = find_place(segment, offset)
            if found is not None:
                place = (segment, *found)
            else:
                segment = local.segments.higher(segment.base_offset)
        if place is None:
            active = local.segments.active
            place = (active, active.size, 0)
        if len(places) >= _PLACES_KEPT:
            del places[next(iter(places))]
        places[offset] = place
        return place

    def forget_positions(self) -> None:
        """Segments were cut, replaced or deleted: offsets may be elsewhere."""
        self._places.clear()

    # Transactions.

    def note_aborted(self, base_offset: int) -> None:
        """A segment got an aborted transaction."""
        position = bisect_left(self._aborted_bases, base_offset)
        if self._aborted_bases[position : position + 1] != [base_offset]:
            insort(self._aborted_bases, base_offset)
        self._local.tail.has_aborted = True

    def write_aborted(self) -> None:
        """Write down what the indexes of aborted transactions contain."""
        local = self._local
        found = (local.segments.get(base_offset) for base_offset in self._aborted_bases)
        write_aborted(local.filesystem, local.directory, [each for each in found if each])

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start_offset, end_offset)."""
        found: list[AbortedTransaction] = []
        # A transaction is noted in the segment of its marker: this one or any later one.
        first = self._local.segments.floor(start_offset)
        start = 0 if first is None else bisect_left(self._aborted_bases, first.base_offset)
        for base_offset in self._aborted_bases[start:]:
            segment = self._local.segments.get(base_offset)
            if segment is not None:
                search = segment.indexes.transactions.search(start_offset, end_offset)
                found += search.transactions
                if search.is_complete:
                    break
        return found

    def _aborted_within(self, found: FetchData) -> list[AbortedTransaction]:
        """Those that have records in the bytes of a read."""
        if not self._aborted_bases:
            return []
        segments = self._local.segments
        segment = segments.get(found.start.segment_base_offset)
        assert segment is not None
        end_position = found.start.position + found.size
        end_offset = segment.upper_bound_offset(end_position)
        if end_offset is not None:
            # A hint, like everything an index says; too high an offset only finds too much.
            head = segment.find_batch(end_offset)
            if head is None or head.position < end_position:
                end_offset = None
        if end_offset is None:
            following = segments.higher(segment.base_offset)
            end_offset = self._local.log_end_offset
            if following is not None:
                end_offset = following.base_offset
        return self.aborted_transactions(found.start.offset, end_offset)

    # Time.

    def offset_for_timestamp(
        self, timestamp: int, log_start_offset: int, bound: int, epochs: LeaderEpochCache
    ) -> TimedRecord | None:
        """The first record at or after a time and before a bound, or what a special value asks."""
        if timestamp >= 0:
            found = self._first_at_or_after(timestamp, log_start_offset)
        elif timestamp == MAX_TIMESTAMP:
            found = self._with_largest_timestamp(log_start_offset)
        elif timestamp == LATEST_TIMESTAMP:
            return TimedRecord(NO_TIMESTAMP, bound, epochs.latest_epoch)
        elif timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            epoch = epochs.epoch_for_offset(log_start_offset)
            epoch = UNDEFINED_EPOCH if epoch is None else epoch
            return TimedRecord(NO_TIMESTAMP, log_start_offset, epoch)
        elif timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return _UNKNOWN  # Nothing of this log is in tiered storage.
        else:
            raise InvalidArgument(f"no special timestamp is called {timestamp}")
        return found if found is not None and found.offset < bound else None

    def _first_at_or_after(self, timestamp: int, log_start_offset: int) -> TimedRecord | None:
        for segment in self._local.segments.from_offset(log_start_offset):
            if segment.largest.timestamp >= timestamp:
                found = find_by_timestamp(segment, timestamp, log_start_offset)
                if found is not None:
                    return found
        return None

    def _with_largest_timestamp(self, log_start_offset: int) -> TimedRecord | None:
        """The first record that has the largest timestamp of all."""
        segments = self._local.segments.from_offset(log_start_offset)
        newest = max(segments, key=lambda segment: segment.largest.timestamp)
        if newest.largest.timestamp < 0:
            return None
        return find_by_timestamp(newest, newest.largest.timestamp, log_start_offset)
