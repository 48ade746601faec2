"""Appends to one partition's log: as its leader, who decides, or as a follower, who copies.

`UnifiedLog` owns one. An append is checked, its epoch is noted, a new segment begins if the old
one has no room, the bytes are written, and then the producers are told. Whatever fails, fails
before the log's end has moved, so that a failed append has never happened.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.records.batch import RecordBatch
from millstream.records.control import ControlType, control_type, parse_end_txn_marker
from millstream.records.layout import NO_PRODUCER_ID, NO_TIMESTAMP
from millstream.storage.faults import storage_error
from millstream.storage.log.log_results import AppendInfo
from millstream.storage.log.log_state import RELATIVE_OFFSET_MAX
from millstream.storage.log.producer_entry import AppendOrigin, CompletedTransaction
from millstream.storage.log.producer_replay import replay_batch
from millstream.storage.log.transaction_index import AbortedTransaction
from millstream.storage.log.validator import Inspected, LogValidator, check_replicated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.records.legacy import LegacyBatch
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.epoch_cache import LeaderEpochCache
    from millstream.storage.log.local_log import LocalLog
    from millstream.storage.log.log_reader import LogReader
    from millstream.storage.log.producer_entry import BatchMetadata
    from millstream.storage.log.producer_state import ProducerStateManager
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.verification import VerificationGuard
    from millstream.types import ReadableBuffer


class LogAppender:
    """Everything that makes a log longer."""

    __slots__ = ("_epochs", "_is_stamping", "_local", "_producers", "_reader", "validator")

    def __init__(
        self,
        local: LocalLog,
        producers: ProducerStateManager,
        epochs: LeaderEpochCache,
        reader: LogReader,
    ) -> None:
        self._local = local
        self._producers = producers
        self._epochs = epochs
        self._reader = reader
        self.update_config(local.config)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings, from the next append on."""
        self.validator = LogValidator(config)
        self._is_stamping = config.message_timestamp_type == "LogAppendTime"

    def append_as_leader(
        self,
        records: ReadableBuffer | Inspected,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> AppendInfo:
        """Check records that nobody has inspected yet, number them and write them."""
        local = self._local
        if not isinstance(records, Inspected):
            records = self.validator.inspect(records, now_ms, origin)
        elif records.validator is not self.validator:
            records = self.validator.inspect(records.records, now_ms, origin)
        batches = records.number(local.log_end_offset, leader_epoch)
        for batch in batches:
            if batch.producer_id != NO_PRODUCER_ID:
                duplicate = self._check_producer(batch, origin, guard, transaction_version)
                if duplicate is not None:
                    return self._duplicate_info(duplicate, batch.size)
        try:
            self.note_epoch(leader_epoch, batches[0].base_offset)
            active = local.segments.active
            for batch in batches:
                self._append_batch(batch, now_ms)
        except OSError as error:
            raise storage_error(local.directory, "appending", error) from error
        return AppendInfo(
            batches[0].base_offset,
            local.log_end_offset - 1,
            max([batch.max_timestamp for batch in batches]),
            now_ms if self._is_stamping else NO_TIMESTAMP,
            len(records.records),
            is_duplicate=False,
            wants_flush=local.segments.active is not active or local.wants_flush(now_ms),
        )

    def append_as_follower(
        self, records: ReadableBuffer, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Write what was fetched, as it is; None if nothing of it was usable."""
        local = self._local
        batches = check_replicated(records, local.log_end_offset, leader_epoch)
        if not batches:
            return None
        active = local.segments.active
        start = 0
        try:
            for run in _runs(batches, local.config.segment_size_max):
                end = start + sum(batch.size for batch in run)
                self._append_run(memoryview(records)[start:end], run, now_ms)
                start = end
        except OSError as error:
            # Epochs are noted before their records, some of which are not in the log now.
            self._epochs.truncate_from_end(local.log_end_offset)
            raise storage_error(local.directory, "appending", error) from error
        return AppendInfo(
            batches[0].base_offset,
            batches[-1].last_offset,
            max(batch.max_timestamp for batch in batches),
            NO_TIMESTAMP,
            start,
            is_duplicate=False,
            wants_flush=local.segments.active is not active or local.wants_flush(now_ms),
        )

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """An epoch is on disk before its first record is in the log."""
        if epoch > self._epochs.latest_epoch:
            self._epochs.assign(epoch, start_offset)
        elif self._epochs.is_dirty:
            self._epochs.flush()

    def roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Close the active segment and go on in another; the active one if it is empty."""
        local, producers = self._local, self._producers
        base_offset = max(base_offset, local.log_end_offset)
        if local.segments.active.base_offset != base_offset:
            producers.advance_to(base_offset)
            snapshot_offset = producers.take_snapshot(sync=False)
            if snapshot_offset is not None:
                local.sync_with_next_flush(producers.snapshots.path(snapshot_offset))
        closed = local.segments.active
        created = local.roll(base_offset, now_ms)
        if closed.indexes.transactions.entries():
            self._reader.write_aborted()
        return created

    def _append_batch(self, batch: RecordBatch, now_ms: int) -> None:
        segment = self._segment_for(batch.size, batch, batch, now_ms)
        if batch.is_control:
            self._append_control(segment, batch, now_ms)
        else:
            self._write(batch, now_ms)
        self._note_appended(batch)

    def _append_control(self, segment: LogSegment, batch: RecordBatch, now_ms: int) -> None:
        aborted = self._transaction_aborted_by(batch)
        if aborted is None:
            self._write(batch, now_ms)
            return
        # The index first: no reader may meet the marker without it.
        segment.indexes.transactions.append(aborted)
        self._reader.note_aborted(segment.base_offset)
        try:
            self._write(batch, now_ms)
        except OSError:
            with suppress(OSError):
                segment.indexes.transactions.truncate_to(batch.base_offset)
            raise

    def _write(self, batch: RecordBatch, now_ms: int) -> None:
        self._local.tail.append(batch.view, batch.last_offset, batch.max_timestamp, now_ms)

    def _append_run(
        self, data: memoryview, batches: Sequence[RecordBatch | LegacyBatch], now_ms: int
    ) -> None:
        """Write batches of a fetch that go to one segment."""
        for batch in batches:
            self._note_replicated_epoch(batch)
        first, last = batches[0], batches[-1]
        if isinstance(first, RecordBatch) and first.is_control:
            self._append_batch(first, now_ms)
            return
        self._segment_for(len(data), first, last, now_ms)
        summaries = [(batch.size, batch.last_offset, batch.max_timestamp) for batch in batches]
        self._local.tail.append_batches(data, summaries, now_ms)
        for batch in batches:
            self._note_appended(batch)

    def _segment_for(
        self,
        incoming_bytes: int,
        first: RecordBatch | LegacyBatch,
        last: RecordBatch | LegacyBatch,
        now_ms: int,
    ) -> LogSegment:
        """The active segment, or a new one if what comes has no room in it."""
        segment = self._local.segments.active
        if segment.should_roll(incoming_bytes, last.last_offset, last.max_timestamp, now_ms):
            # Without a gap to the last segment, even if there is one to the last record: so
            # recovery sees when records are missing. Unless the gap is too large for an index.
            end_offset = self._local.log_end_offset
            is_near = last.last_offset - end_offset <= RELATIVE_OFFSET_MAX
            return self.roll(end_offset if is_near else first.base_offset, now_ms)
        return segment

    def _note_appended(self, batch: RecordBatch | LegacyBatch) -> None:
        if isinstance(batch, RecordBatch) and batch.producer_id != NO_PRODUCER_ID:
            replay_batch(self._producers, batch)
        else:
            self._producers.advance_to(batch.next_offset)

    def _note_replicated_epoch(self, batch: RecordBatch | LegacyBatch) -> None:
        if isinstance(batch, RecordBatch):
            if batch.leader_epoch >= 0:
                self.note_epoch(batch.leader_epoch, batch.base_offset)
        elif self._epochs.latest is not None:
            # Formats without epochs: what is known about epochs no longer holds.
            self._epochs.clear()
            self._epochs.flush()

    def _check_producer(
        self,
        batch: RecordBatch,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> BatchMetadata | None:
        """Refuse what the producer may not append; the first copy if it is in the log already."""
        if batch.is_control:
            marker = parse_end_txn_marker(batch.records()[0])
            self._producers.check_marker(
                batch.producer_id,
                batch.producer_epoch,
                marker.coordinator_epoch,
                transaction_version,
            )
            return None
        if origin is AppendOrigin.CLIENT:
            duplicate = self._producers.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
        self._producers.check_append(batch, origin, guard)
        return None

    def _duplicate_info(self, batch: BatchMetadata, byte_count: int) -> AppendInfo:
        return AppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,
            batch.timestamp if self._is_stamping else NO_TIMESTAMP,
            byte_count,
            is_duplicate=True,
        )

    def _transaction_aborted_by(self, batch: RecordBatch) -> AbortedTransaction | None:
        """The transaction that an abort marker ends, if it has records here."""
        entry = self._producers.producers.get(batch.producer_id)
        first_offset = None if entry is None else entry.transaction_first_offset
        records = batch.records()
        if first_offset is None or not records or control_type(records[0]) != ControlType.ABORT:
            return None
        ended = CompletedTransaction(
            batch.producer_id, first_offset, batch.last_offset, is_aborted=True
        )
        return AbortedTransaction(
            batch.producer_id,
            first_offset,
            batch.last_offset,
            self._producers.last_stable_offset_after(ended),
        )


def _runs(
    batches: Sequence[RecordBatch | LegacyBatch], bytes_max: int
) -> Iterator[list[RecordBatch | LegacyBatch]]:
    """Cut a fetch into what one write may take: what fits in a segment, control batches alone.

    A control batch may end a transaction, which is noted before it is written.
    """
    run: list[RecordBatch | LegacyBatch] = []
    run_bytes = 0
    for batch in batches:
        if run and (
            batch.is_control
            or run[0].is_control
            or run_bytes + batch.size > bytes_max
            or batch.last_offset - run[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield run
            run, run_bytes = [], 0
        run.append(batch)
        run_bytes += batch.size
    yield run
