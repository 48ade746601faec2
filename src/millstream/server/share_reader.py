"""Reads a partition's log for a share group: which batches there are, and their bytes.

`ShareFetchService` asks. Markers, and with read_committed the batches of aborted transactions, are
told apart, because nobody is to get them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.config.durations import duration_ms
from millstream.coordinator.group.share.config import EARLIEST, LATEST
from millstream.coordinator.share.delivery import ReadBatches
from millstream.records import RecordBatch, split_batches
from millstream.replica.partition_reader import list_offset, readable_end
from millstream.storage.log.log_results import LATEST_TIMESTAMP, FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.coordinator.group.share.config import ShareGroupSettings
    from millstream.coordinator.share.delivery import Acquired
    from millstream.replica.partition import Partition
    from millstream.storage.log.transaction_index import AbortedTransaction

READ_BYTES: Final = 256 << 10
"""How much is read at a time: members mostly want fewer bytes than they allow."""
_BY_DURATION: Final = "by_duration:"


class ShareRead(NamedTuple):
    """Some of a log."""

    read: ReadBatches
    places: Sequence[tuple[int, int, int]]
    """Last offset, begin and end in the bytes of each batch."""
    data: memoryview

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.places[-1][0] + 1

    def bytes_of(self, acquired: Sequence[Acquired]) -> memoryview:
        """The batches that have some of the records."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        begin = next(begin for end_offset, begin, _ in self.places if end_offset >= first)
        end = next((end for end_offset, _, end in self.places if end_offset >= last), None)
        return self.data[begin:end]


def isolation_of(settings: ShareGroupSettings) -> FetchIsolation:
    """How far a group may read."""
    if settings.is_read_committed:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def has_records(partition: Partition, offset: int, isolation: FetchIsolation) -> bool:
    """Whether there is something to read from an offset on."""
    return offset < readable_end(partition, isolation)


def bytes_from(partition: Partition, offset: int, isolation: FetchIsolation) -> int:
    """About how many bytes there are to read; many if they are not in one segment."""
    end = partition.log.locate(readable_end(partition, isolation))
    start = partition.log.locate(offset)
    if start.segment_base_offset != end.segment_base_offset:
        return READ_BYTES
    return start.bytes_before(end)


def read_for_share(
    partition: Partition,
    offset: int,
    bytes_max: int,
    isolation: FetchIsolation,
    *,
    must_progress: bool,
) -> ShareRead | None:
    """Whole batches from an offset on; None if there are none, or none that fit."""
    if not has_records(partition, offset, isolation):
        return None
    found = partition.log.read(
        offset, min(bytes_max, READ_BYTES), isolation, must_progress=must_progress
    )
    if found.records is None or found.is_first_batch_incomplete:
        return None
    data = memoryview(found.records.read())
    batches: list[tuple[int, int]] = []
    withheld: list[tuple[int, int]] = []
    places: list[tuple[int, int, int]] = []
    at = 0
    for batch in split_batches(data):
        span = (batch.base_offset, batch.last_offset)
        places.append((batch.last_offset, at, at + batch.size))
        at += batch.size
        batches.append(span)
        if isinstance(batch, RecordBatch) and _is_withheld(batch, found.aborted_transactions or ()):
            withheld.append(span)
    if not batches:
        return None
    return ShareRead(ReadBatches(offset, batches, withheld), places, data)


def _is_withheld(batch: RecordBatch, aborted: Iterable[AbortedTransaction]) -> bool:
    if batch.is_control:
        return True
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id
        and each.first_offset <= batch.base_offset <= each.last_offset
        for each in aborted
    )


def start_offset(partition: Partition, settings: ShareGroupSettings, wall_ms: int) -> int:
    """Where a group begins that has never read a partition."""
    strategy = settings.auto_offset_reset
    isolation = isolation_of(settings)
    if strategy == EARLIEST:
        return partition.log.log_start_offset
    if strategy != LATEST and strategy.startswith(_BY_DURATION):
        since_ms = wall_ms - duration_ms(strategy.removeprefix(_BY_DURATION))
        found = list_offset(partition, max(since_ms, 0), isolation).offset
        if found >= 0:
            return found
    return list_offset(partition, LATEST_TIMESTAMP, isolation).offset
