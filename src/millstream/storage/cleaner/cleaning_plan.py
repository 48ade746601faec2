"""What of a log compaction would read and rewrite, and whether it is worth it. Decides only.

`LogCleaner` asks on the owner's thread, a few logs at a time; the answer is a value that a worker
may keep. The bounds are Kafka's: nothing at or after the last stable offset, nothing of the active
segment, nothing younger than `min.compaction.lag.ms`, and only whole segments.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.storage.cleaner.compaction import LastRecord
from millstream.storage.log.log_state import RELATIVE_OFFSET_MAX
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog

_logger = logging.getLogger(__name__)

_BATCH_BYTES_MIN: Final = 61
_TIME_ENTRY_BYTES: Final = 12


class SegmentSpan(NamedTuple):
    """A closed segment as a worker knows it: a file that does not change."""

    base_offset: int
    next_base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """A log's segments that may be rewritten, and how dirty they are."""

    first_dirty_offset: int
    """The keys of everything from here on are not known yet."""
    end_offset: int
    """Nothing from here on may be touched; a segment begins here."""
    segments: tuple[SegmentSpan, ...]
    """All of them before the end, the clean ones too: they have the older values."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether `max.compaction.lag.ms` has passed for a dirty record."""

    @property
    def dirty_ratio(self) -> float:
        """Which part of the bytes has never been compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether the log wants to be compacted now."""
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_cleaning(log: UnifiedLog, checkpointed_offset: int | None, now_ms: int) -> CleaningPlan:
    """What may be cleaned of a log whose records before an offset were compacted already."""
    config = log.config
    first_dirty = _first_dirty_offset(log, checkpointed_offset)
    segments = list(log.segments)
    closed = segments[:-1]
    dirty = [
        segment
        for segment, following in zip(closed, segments[1:], strict=True)
        if following.base_offset > first_dirty
    ]
    end_offset = _end_offset(log, dirty, config, now_ms)
    spans = tuple(
        SegmentSpan(segment.base_offset, following.base_offset, segment.size)
        for segment, following in zip(closed, segments[1:], strict=True)
        if segment.base_offset < end_offset
    )
    return CleaningPlan(
        first_dirty,
        end_offset,
        spans,
        sum(span.size for span in spans if span.next_base_offset <= first_dirty),
        sum(span.size for span in spans if span.next_base_offset > first_dirty),
        _is_overdue((each for each in dirty if each.base_offset < end_offset), config, now_ms),
    )


def group_segments(spans: Iterable[SegmentSpan], config: LogConfig) -> list[list[SegmentSpan]]:
    """Neighbours that fit into one segment together, even if nothing of them goes."""
    groups: list[list[SegmentSpan]] = []
    for span in spans:
        if groups and _fits(groups[-1], span, config):
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def last_records_of_producers(log: UnifiedLog) -> dict[int, LastRecord]:
    """What must stay of each producer the log knows."""
    return {
        producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.epoch)
        for producer_id, entry in log.producers.producers.items()
    }


def _first_dirty_offset(log: UnifiedLog, checkpointed: int | None) -> int:
    if checkpointed is None or checkpointed < log.log_start_offset:
        return log.log_start_offset
    if checkpointed > log.log_end_offset:
        _logger.warning(
            "%s was compacted up to %d, it is said, but ends at %d; it is compacted from its start",
            log.directory,
            checkpointed,
            log.log_end_offset,
        )
        return log.log_start_offset
    return checkpointed


def _end_offset(log: UnifiedLog, dirty: list[LogSegment], config: LogConfig, now_ms: int) -> int:
    """The base of the first segment that must be left alone."""
    undecided = log.segments.floor(log.last_stable_offset)
    bounds = [log.segments.active.base_offset]
    if undecided is not None:
        bounds.append(undecided.base_offset)
    if config.min_compaction_lag_ms > 0:
        newest_allowed = now_ms - config.min_compaction_lag_ms
        young = (each for each in dirty if each.largest.timestamp > newest_allowed)
        bounds.extend(each.base_offset for each in [next(young, None)] if each is not None)
    return min(bounds)


def _is_overdue(dirty: Iterable[LogSegment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= INT64_MAX:
        return False
    oldest_allowed = now_ms - config.max_compaction_lag_ms
    for segment in dirty:
        first = next(segment.heads(), None)
        if first is not None and 0 < first.max_timestamp < oldest_allowed:
            return True
    return False


def _fits(group: list[SegmentSpan], span: SegmentSpan, config: LogConfig) -> bool:
    size = sum(each.size for each in group) + span.size
    entries = size // max(config.index_interval_bytes, _BATCH_BYTES_MIN) + 1
    return (
        size <= config.segment_size_max
        and entries * _TIME_ENTRY_BYTES <= config.segment_index_bytes
        and span.next_base_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )
