"""What compaction keeps of one batch: rules and bytes, no files.

The cleaner reads the dirty part of a log with `index_batch`, which fills the `OffsetMap`, and then
gives every batch of the segments it rewrites to a `BatchCompactor`, in order, which answers with
the batch to write or with None. Offsets, sequences and the batch's bounds never change; records
that stay are copied as they are. Reading, writing, swapping and timing are the cleaner's.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import CorruptMessage
from millstream.records.batch import RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.records.compression import DECOMPRESSED_SIZE_MAX, Compression, compress
from millstream.records.control import ControlType, control_type
from millstream.records.kernel import BatchWriter, scan_records
from millstream.records.layout import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.records.kernel import Record
    from millstream.records.legacy import LegacyBatch
    from millstream.storage.cleaner.offset_map import OffsetMap
    from millstream.storage.log.transaction_index import AbortedTransaction
    from millstream.types import ReadableBuffer


class LastRecord(NamedTuple):
    """What must survive of a producer that is still active, so that its state can be rebuilt."""

    last_data_offset: int | None
    """The end of its last batch with data; None if only markers of it are left."""
    producer_epoch: int


class CleanedTransactions:
    """Which transactions a pass has met: batches of aborted ones go, markers wait for them.

    Batches must come in the order of the log, from the first segment the pass rewrites on.
    """

    __slots__ = ("_committed", "_ongoing", "_upcoming", "retained_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._upcoming: list[tuple[int, AbortedTransaction]] = []
        # By producer: an aborted transaction that has begun, and whether data of it was seen.
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.retained_aborted: list[AbortedTransaction] = []
        """Aborted transactions whose marker stays: for the new segment's transaction index."""
        self.add_aborted(aborted)

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Tell what the transaction index of the next segment says."""
        for each in aborted:
            heappush(self._upcoming, (each.first_offset, each))

    def can_discard(self, batch: RecordBatch) -> bool:
        """Whether a batch is not needed any more: aborted data, or the marker of an empty
        transaction."""
        while self._upcoming and self._upcoming[0][0] <= batch.last_offset:
            _, transaction = heappop(self._upcoming)
            self._ongoing.setdefault(transaction.producer_id, (transaction, False))
        if batch.is_control:
            return self._on_marker(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._ongoing:
            self._ongoing[batch.producer_id] = (self._ongoing[batch.producer_id][0], True)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _on_marker(self, batch: RecordBatch) -> bool:
        records = batch.records()
        if not records:
            return True  # emptied by an earlier pass
        match control_type(records[0]):
            case ControlType.ABORT:
                transaction, has_data = self._ongoing.pop(batch.producer_id, (None, False))
                if transaction is not None and has_data:
                    self.retained_aborted.append(transaction)
                return not has_data
            case ControlType.COMMIT:
                is_empty = batch.producer_id not in self._committed
                self._committed.discard(batch.producer_id)
                return is_empty
            case _:
                return False


def index_batch(
    batch: RecordBatch | LegacyBatch,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    from_offset: int,
) -> bool:
    """Note the keys of a batch; False if the map is full and the pass must end before it.

    Keys of a batch that did not fit whole do no harm: their records are beyond the map's latest
    offset and stay, whatever the map says about them.
    """
    if isinstance(batch, RecordBatch):
        if not transactions.can_discard(batch) and not batch.is_control:
            keys = [
                (batch.base_offset + delta, key)
                for delta, _, key, _, _, _ in _scan(batch, batch.body(DECOMPRESSED_SIZE_MAX))
            ]
        else:
            keys = []
    else:
        keys = [(record.offset, record.key) for record in batch.records()]
    for offset, key in keys:
        if key is not None and offset >= from_offset and not offsets.put(key, offset):
            return False
    if batch.last_offset >= from_offset:
        offsets.latest_offset = batch.last_offset
    return True


@dataclass(frozen=True, slots=True)
class BatchCompactor:
    """The rules of one pass. `offsets` is full, `transactions` is as at the pass's beginning."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int

    def compact(self, batch: RecordBatch | LegacyBatch) -> ReadableBuffer | None:
        """The batch to write in its place, possibly the very same bytes; None for none."""
        if not isinstance(batch, RecordBatch):
            return self._compact_legacy(batch)
        can_discard = self.transactions.can_discard(batch)
        kept: ReadableBuffer | None
        if batch.is_control:
            kept = self._compact_marker(batch, is_of_empty_transaction=can_discard)
        else:
            kept = None if can_discard else self._compact_data(batch)
        if kept is None and self._is_last_of_active_producer(batch):
            return _emptied(batch)
        return kept

    def _compact_marker(
        self, batch: RecordBatch, *, is_of_empty_transaction: bool
    ) -> ReadableBuffer | None:
        if batch.record_count == 0:
            return None
        if not is_of_empty_transaction:
            return batch.view
        if batch.delete_horizon_ms is None:
            return self._with_delete_horizon(batch, batch.records())
        return batch.view if self.now_ms < batch.delete_horizon_ms else None

    def _compact_data(self, batch: RecordBatch) -> ReadableBuffer | None:
        body = batch.body(DECOMPRESSED_SIZE_MAX)
        found = _scan(batch, body)
        horizon = batch.delete_horizon_ms
        keeps_tombstones = horizon is None or self.now_ms < horizon
        kept = [
            index
            for index, (delta, _, key, has_value, _, _) in enumerate(found)
            if self._stays(batch.base_offset + delta, key, has_value or keeps_tombstones)
        ]
        if not kept:
            return None
        if horizon is None and not all(found[index][3] for index in kept):
            records = batch.records()
            return self._with_delete_horizon(batch, [records[index] for index in kept])
        if len(kept) == len(found):
            return batch.view
        return _with_raw_records(batch, body, [found[index] for index in kept])

    def _stays(self, offset: int, key: bytes | None, is_wanted: bool) -> bool:
        if offset > self.offsets.latest_offset:
            return True
        return key is not None and is_wanted and offset >= self.offsets.get(key)

    def _with_delete_horizon(self, batch: RecordBatch, records: Sequence[Record]) -> bytes:
        """The records again, in a batch that says when its tombstones or its marker may go.

        The horizon takes the place of the base timestamp, so all timestamps are written anew.
        """
        builder = RecordBatchBuilder(batch.size, self.now_ms + self.delete_retention_ms)
        for record in records:
            builder.append(
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                record.offset - batch.base_offset,
            )
        is_stamped = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
        return builder.build(
            compression=batch.compression,
            timestamp_type=batch.timestamp_type,
            base_offset=batch.base_offset,
            last_offset_delta=batch.last_offset_delta,
            leader_epoch=batch.leader_epoch,
            max_timestamp=batch.max_timestamp if is_stamped else None,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            has_delete_horizon=True,
        )

    def _is_last_of_active_producer(self, batch: RecordBatch) -> bool:
        if batch.producer_id == NO_PRODUCER_ID:
            return False
        last = self.last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _compact_legacy(self, batch: LegacyBatch) -> bytes | None:
        """Messages of the old formats become a batch of today's; their tombstones get a horizon."""
        records = batch.records()
        kept = [each for each in records if self._stays(each.offset, each.key, is_wanted=True)]
        if not kept:
            return None
        has_tombstones = any(record.value is None for record in kept)
        horizon = self.now_ms + self.delete_retention_ms if has_tombstones else None
        builder = RecordBatchBuilder(batch.size, horizon)
        base_offset = records[0].offset
        for each in kept:
            delta = each.offset - base_offset
            builder.append(each.timestamp, each.key, each.value, each.headers, delta)
        return builder.build(
            compression=batch.compression,
            timestamp_type=batch.timestamp_type,
            base_offset=base_offset,
            last_offset_delta=batch.last_offset - base_offset,
            max_timestamp=batch.max_timestamp if batch.timestamp_type else None,
            has_delete_horizon=has_tombstones,
        )


def _scan(
    batch: RecordBatch, body: ReadableBuffer
) -> list[tuple[int, int, bytes | None, bool, int, int]]:
    try:
        return scan_records(body, batch.record_count)
    except CorruptMessage as error:
        raise CorruptMessage(f"the batch at offset {batch.base_offset}: {error}") from error


def _with_raw_records(
    batch: RecordBatch,
    body: ReadableBuffer,
    kept: Sequence[tuple[int, int, bytes | None, bool, int, int]],
) -> bytes:
    """The batch with some of its records, whose bytes are copied as they are."""
    writer = BatchWriter(len(body))
    view = memoryview(body)
    for delta, timestamp_delta, _, _, start, end in kept:
        writer.append_raw(view[start:end], delta, batch.base_timestamp + timestamp_delta)
    is_stamped = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    with writer.body() as records:
        return writer.seal(
            base_offset=batch.base_offset,
            leader_epoch=batch.leader_epoch,
            attributes=batch.attributes,
            last_offset_delta=batch.last_offset_delta,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp if is_stamped else writer.max_timestamp,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            body=compress(batch.compression, records),
        )


def _emptied(batch: RecordBatch) -> ReadableBuffer:
    """The header alone: it keeps the producer's last sequence and epoch."""
    if batch.record_count == 0:
        return batch.view
    return BatchWriter(0).seal(
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT) | Compression.NONE,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
