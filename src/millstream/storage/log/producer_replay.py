"""Rebuilds what a log knows about its producers from the log itself.

`loader` does it at the start and `UnifiedLog` after a truncation: back to the newest snapshot,
then every batch after it. It reads segments and changes only the producer state, except that
`replay_batch` writes aborted transactions to the index of a segment under recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.records.batch import RecordBatch
from millstream.storage.log.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from millstream.storage.log.producer_state import ProducerStateManager
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.segments import LogSegments


def replay_producers(
    producers: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Make the producer state that of the log up to an offset."""
    producers.reload(log_start_offset, end_offset, now_ms)
    if producers.end_offset >= end_offset:
        return
    for segment in segments.between(producers.end_offset, end_offset):
        start = max(producers.end_offset, segment.base_offset)
        head = segment.find_batch(start) if segment.size else None
        if head is None:
            continue
        for _, batch in segment.batches(head.position):
            if batch.base_offset >= end_offset:
                break
            if isinstance(batch, RecordBatch) and batch.last_offset >= producers.end_offset:
                replay_batch(producers, batch)
    producers.advance_to(end_offset)


def replay_batch(
    producers: ProducerStateManager, batch: RecordBatch, segment: LogSegment | None = None
) -> None:
    """Take note of one batch; aborted transactions go to the segment's index, if one is given."""
    completed = producers.record(batch)
    if completed is None:
        return
    if completed.is_aborted and segment is not None:
        segment.indexes.transactions.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset_after(completed),
            )
        )
    producers.complete(completed)
