"""Finds the record of a time within a segment.

`UnifiedLog` asks for ListOffsets. The time index gives the place to begin; then heads are read, and
in the end the records of a single batch. An index that contradicts the log is rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.storage.log.batch_scan import read_batch
from millstream.storage.log.index import CorruptIndex, TimestampOffset

if TYPE_CHECKING:
    from millstream.storage.log.segment import LogSegment


class TimedRecord(NamedTuple):
    """A record's timestamp and offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(segment: LogSegment, timestamp: int, from_offset: int) -> TimedRecord | None:
    """The first record at or after an offset whose timestamp is not earlier."""
    known = _known_before(segment, timestamp)
    first = segment.find_batch(max(known.offset, from_offset))
    if first is None:
        return None
    for head in segment.heads(first.position):
        if head.max_timestamp >= timestamp:
            batch = read_batch(segment.open_file(), head)
            found = batch.find_since(timestamp, from_offset)
            if found is not None:
                return TimedRecord(found[1], found[0], batch.leader_epoch)
    return None


def find_largest_timestamp(segment: LogSegment) -> TimedRecord | None:
    """The first record with the segment's largest timestamp; None if no record has one."""
    timestamp = segment.largest.timestamp
    return find_by_timestamp(segment, timestamp, segment.base_offset) if timestamp >= 0 else None


def _known_before(segment: LogSegment, timestamp: int) -> TimestampOffset:
    """The time index's word on where to begin, if the log bears it out."""
    known = segment.time_entry_before(timestamp)
    if known.timestamp >= 0:
        head = segment.find_batch(known.offset)
        if head is None or head.max_timestamp != known.timestamp:
            error = CorruptIndex(f"{segment.indexes.times.path} does not match its log")
            if segment.distrust_indexes(error):
                return segment.time_entry_before(timestamp)
            return TimestampOffset(-1, segment.base_offset)
    return known
