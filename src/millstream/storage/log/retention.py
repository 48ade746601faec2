"""Which of a log's oldest segments retention lets go. Decides, deletes nothing.

`UnifiedLog.delete_old_segments` asks. The rules are Kafka's: by age of the newest record, by size
of the whole log, and by the log start offset, which applies whatever the policy is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.segment import LogSegment


def count_deletable(
    segments: list[LogSegment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments may go, from the oldest on; possibly all, then the log begins anew.

    A segment stays as long as it has a record that is not committed, and so do all after it.
    """
    excess_bytes = _excess_bytes(segments, config)
    for count, segment in enumerate(segments):
        is_last = count + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[count + 1].base_offset
        if high_watermark < end_offset or (is_last and segment.size == 0):
            return count
        is_needed = not (
            (not is_last and end_offset <= log_start_offset)
            or (config.deletes_old_segments and _is_expired(segment, config, now_ms))
            or excess_bytes >= segment.size
        )
        if is_needed:
            return count
        excess_bytes -= segment.size
    return len(segments)


def _excess_bytes(segments: list[LogSegment], config: LogConfig) -> int:
    """By how much the log is larger than its limit; negative if it may grow."""
    if not config.deletes_old_segments or config.retention_bytes < 0:
        return -1
    return sum(segment.size for segment in segments) - config.retention_bytes


def _is_expired(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    """By the newest record's own time; a time in the future keeps the segment."""
    if config.retention_ms < 0:
        return False
    newest = segment.largest.timestamp
    if newest < 0:
        newest = segment.created_ms
    return now_ms - newest > config.retention_ms
