"""What a log knows about its producers: sequences, epochs, transactions.

`UnifiedLog` asks `check_append` before it writes a batch, tells `record` after it did, and rebuilds
the same state from the log at the start; the state is that of `log_state.ProducersState`. The rules
are Kafka's (idempotence and KIP-890). Snapshots keep the rebuild short. It never reads the log
itself and never decides when to write a snapshot.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from millstream.records.control import ControlType, control_type, parse_end_txn_marker
from millstream.storage.log.log_state import ProducersState
from millstream.storage.log.producer_entry import (
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    ProducerEntry,
    next_sequence,
)
from millstream.storage.log.producer_snapshot import EarlierBatch, SnapshotEntry, SnapshotFiles
from millstream.storage.log.verification import VerificationGuard, VerificationTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.records.batch import RecordBatch
    from millstream.storage.filesystem import FileSystem

NO_PRODUCER_ID: Final = -1


class ProducerStateManager(ProducersState):
    """The producers of one partition. Not thread-safe, like the log it belongs to."""

    __slots__ = (
        "_snapshot_offset",
        "_verifications",
        "expiration_ms",
        "snapshots",
        "verifies_transactions",
    )

    _producers: dict[int, ProducerEntry]

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        *,
        expiration_ms: int,
        verifies_transactions: bool = True,
        snapshot_offsets: Iterable[int] = (),
    ) -> None:
        super().__init__()
        self.snapshots = SnapshotFiles(filesystem, directory, snapshot_offsets)
        self.expiration_ms = expiration_ms
        self.verifies_transactions = verifies_transactions
        self._verifications = VerificationTable(self._verifying)
        self._snapshot_offset = 0

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """The known producers by id, for reading only."""
        return self._producers

    # Before an append.

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The earlier append of the same batch, if it is among the producer's last five."""
        entry = self._producers.get(batch.producer_id)
        if entry is None or batch.is_control:
            return None
        return entry.find(batch.producer_epoch, batch.base_sequence, batch.last_sequence)

    def check_append(
        self, batch: RecordBatch, origin: AppendOrigin, guard: VerificationGuard | None = None
    ) -> None:
        """Raise if a producer may not append this data batch now. Changes nothing.

        The first batch of a client's transaction needs the guard of its verification.
        """
        if batch.producer_id == NO_PRODUCER_ID or origin is AppendOrigin.REPLICATION:
            return
        entry = self._producers.get(batch.producer_id)
        if entry is not None and batch.producer_epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"this partition has seen {entry.epoch}"
            )
        is_open = entry is not None and entry.transaction_first_offset is not None
        if origin is AppendOrigin.CLIENT:
            if batch.is_transactional and not is_open and self.verifies_transactions:
                self._verifications.require(batch.producer_id, guard)
            self._verifications.check_sequence(batch, is_known_producer=entry is not None)
            if entry is not None:
                _check_sequence(batch, entry)
        if is_open and not batch.is_transactional:
            raise InvalidTxnState(
                f"producer {batch.producer_id} has a transaction open in this partition; "
                "a batch outside of it cannot be appended"
            )

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Raise if a coordinator may not append this marker now. Changes nothing."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        is_retry = epoch == entry.epoch and entry.transaction_first_offset is None
        is_newer = epoch > entry.epoch if transaction_version >= 2 else epoch >= entry.epoch
        if not is_newer and not is_retry:
            raise InvalidProducerEpoch(
                f"the marker of producer {producer_id} has epoch {epoch}, "
                f"this partition has seen {entry.epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the marker of producer {producer_id} is from coordinator epoch "
                f"{coordinator_epoch}, this partition has seen {entry.coordinator_epoch}"
            )

    # After an append.

    def record(self, batch: RecordBatch) -> CompletedTransaction | None:
        """Take note of a batch that is in the log; the transaction it ended, if it did.

        The caller then asks `last_stable_offset_after`, writes an aborted one to the segment's
        transaction index, and calls `complete`.
        """
        completed = None
        if batch.producer_id != NO_PRODUCER_ID:
            if batch.is_control:
                completed = self._record_marker(batch)
            else:
                self._record_data(batch)
            if batch.is_transactional:
                self._verifications.forget(batch.producer_id)
        self.end_offset = batch.last_offset + 1
        return completed

    def advance_to(self, end_offset: int) -> None:
        """The log grew by batches without a producer."""
        self.end_offset = end_offset

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Where undecided records begin once a transaction is complete."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is decided; it holds readers back until its marker is committed."""
        del self._ongoing[completed.first_offset]
        insort(self._completed, (completed.first_offset, completed.last_offset))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below the high watermark are committed: their transactions are readable."""
        if self._completed:
            self._completed = [each for each in self._completed if each[1] >= high_watermark]

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open here in this epoch."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.epoch == epoch
            and entry.transaction_first_offset is not None
        )

    # Verification (KIP-890): no transaction begins here that the coordinator does not know.

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """The guard for the first batch of a transaction; None if it is open or not verified."""
        # The partitions of newer clients are added to their transactions by verifying them.
        is_wanted = self.verifies_transactions or supports_epoch_bump
        if not is_wanted or self.has_open_transaction(producer_id, epoch):
            return None
        return self._verifications.begin(
            producer_id, epoch, sequence, now_ms, supports_epoch_bump=supports_epoch_bump
        )

    def is_verifying(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether a guard still counts: no transaction of the producer began or ended since."""
        return self._verifications.holds(producer_id, guard)

    # Time and truncation.

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were idle too long; how many they were."""
        expired = [pid for pid, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        self._verifications.remove_older_than(now_ms - self.expiration_ms)
        return len(expired)

    def on_log_start(self, log_start_offset: int) -> None:
        """Records before an offset are gone. Producers stay known: their state is not in them."""
        self.on_high_watermark(log_start_offset)
        if self.end_offset < log_start_offset:
            self.end_offset = log_start_offset
            self._snapshot_offset = max(self.snapshots.offsets, default=log_start_offset)

    def reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest snapshot within the log; the caller replays what follows it.

        Snapshots outside the log are removed. State that already ends where the log does is kept.
        """
        self.snapshots.remove_where(
            lambda offset: offset > log_end_offset or offset <= log_start_offset
        )
        if log_end_offset == self.end_offset:
            self.on_log_start(log_start_offset)
            return
        completed = self._completed.copy()
        self.clear(log_start_offset)
        newest = self.snapshots.read_newest()
        if newest is not None:
            self.end_offset, entries = newest
            self._snapshot_offset = self.end_offset
            self._restore(entries, now_ms)
        # A snapshot does not know which markers are not committed yet; those after it are found
        # again by the replay.
        self._completed = [each for each in completed if each[1] < self.end_offset]

    def clear(self, offset: int) -> None:
        """Know nothing, from an offset on. The snapshots stay."""
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._verifications.clear()
        self.end_offset = offset
        self._snapshot_offset = offset

    def take_snapshot(self, *, sync: bool = True) -> int | None:
        """Write the state, if it has changed since the last one; the offset it covers up to."""
        if self.end_offset <= self._snapshot_offset:
            return None
        entries = [_snapshot_entry(entry) for entry in self._producers.values()]
        self.snapshots.write(self.end_offset, entries, sync=sync)
        self._snapshot_offset = self.end_offset
        return self.end_offset

    def _record_data(self, batch: RecordBatch) -> None:
        entry = self._entry_for(batch.producer_id)
        entry.move_to_epoch(batch.producer_epoch)
        entry.add_batch(
            batch.last_sequence, batch.last_offset, batch.last_offset_delta, batch.max_timestamp
        )
        if batch.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = batch.base_offset
            self._ongoing[batch.base_offset] = batch.producer_id

    def _record_marker(self, batch: RecordBatch) -> CompletedTransaction | None:
        records = batch.records()
        if records and control_type(records[0]) not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        entry = self._entry_for(batch.producer_id)
        entry.move_to_epoch(batch.producer_epoch)
        if not records:
            # The cleaner emptied it: its transaction is gone from the log, but the batch is still
            # there to tell the producer's epoch.
            entry.last_timestamp = batch.max_timestamp
            return None
        marker = parse_end_txn_marker(records[0])
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = records[0].timestamp
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, None
        if first_offset is None:
            return None
        return CompletedTransaction(
            batch.producer_id, first_offset, records[0].offset, marker.type is ControlType.ABORT
        )

    def _entry_for(self, producer_id: int) -> ProducerEntry:
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(producer_id)
        return entry

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        is_idle = now_ms - entry.last_timestamp >= self.expiration_ms
        return is_idle and entry.transaction_first_offset is None

    def _restore(self, entries: Iterable[SnapshotEntry], now_ms: int) -> None:
        for saved in entries:
            entry = _restored_entry(saved)
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        self._ongoing = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._producers.values()
                if entry.transaction_first_offset is not None
            )
        )


def _snapshot_entry(entry: ProducerEntry) -> SnapshotEntry:
    *earlier, last = entry.batches or [BatchMetadata(-1, -1, 0, -1)]
    first_offset = entry.transaction_first_offset
    return SnapshotEntry(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        -1 if first_offset is None else first_offset,
        tuple(EarlierBatch(*batch) for batch in earlier),
    )


def _restored_entry(saved: SnapshotEntry) -> ProducerEntry:
    entry = ProducerEntry(saved.producer_id, saved.producer_epoch)
    entry.coordinator_epoch = saved.coordinator_epoch
    first_offset = saved.current_transaction_first_offset
    entry.transaction_first_offset = None if first_offset < 0 else first_offset
    if saved.last_offset >= 0:
        for batch in saved.earlier:
            entry.add_batch(*batch)
        entry.add_batch(saved.last_sequence, saved.last_offset, saved.offset_delta, saved.timestamp)
    entry.last_timestamp = saved.timestamp
    return entry


def _check_sequence(batch: RecordBatch, entry: ProducerEntry) -> None:
    """A producer nobody knows may have been forgotten here: only known ones come here."""
    expected = next_sequence(entry.last_sequence) if batch.producer_epoch == entry.epoch else 0
    if batch.base_sequence != expected:
        raise OutOfOrderSequenceNumber(
            f"producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequence "
            f"{batch.base_sequence}, expected {expected}"
        )
