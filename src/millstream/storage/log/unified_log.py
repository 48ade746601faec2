"""One partition's log: records with offsets, producers, leader epochs and watermarks.

`LogManager` opens it, `Partition` appends to it and reads from it; as a library it stands alone. It
never touches the network and never decides who leads. One thread owns it; every method that needs
the time is told. What the methods give is in `log_results`; the offsets are in `log_tail`, where
every append ends. Appending is in `log_appender` and reading in `log_reader`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millstream.errors import (
    InvalidArgument,
    KafkaStorageError,
    OffsetOutOfRange,
)
from millstream.storage.faults import storage_error, storage_errors
from millstream.storage.log.loader import LoadRequest, load_log
from millstream.storage.log.local_log import LocalLog, SyncJob
from millstream.storage.log.log_appender import LogAppender
from millstream.storage.log.log_reader import LogReader
from millstream.storage.log.log_results import AppendInfo, FetchIsolation
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.producer_replay import replay_producers
from millstream.storage.log.retention import count_deletable
from millstream.storage.log.segment_swap import swap_segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.epoch_cache import EpochEnd, LeaderEpochCache
    from millstream.storage.log.loader import LoadedLog
    from millstream.storage.log.log_results import FetchData, OffsetMetadata
    from millstream.storage.log.producer_state import ProducerStateManager
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.segments import LogSegments
    from millstream.storage.log.time_lookup import TimedRecord
    from millstream.storage.log.transaction_index import AbortedTransaction
    from millstream.storage.log.validator import Inspected, LogValidator
    from millstream.storage.log.verification import VerificationGuard
    from millstream.storage.manager.flusher import FlushJob
    from millstream.types import ReadableBuffer


class UnifiedLog:
    """The log of one partition on this broker."""

    __slots__ = ("_appender", "_local", "_reader", "epochs", "producers", "tail")

    def __init__(self, local: LocalLog, loaded: LoadedLog, high_watermark: int) -> None:
        """Use `open`."""
        self._local = local
        self.tail = local.tail
        """Its offsets, for the compiled parts of a broker."""
        self.producers: ProducerStateManager = loaded.producers
        self.epochs: LeaderEpochCache = loaded.epochs
        self._reader = LogReader(local, loaded.aborted_base_offsets)
        self._appender = LogAppender(local, loaded.producers, loaded.epochs, self._reader)
        self.tail.set_high_watermark(high_watermark)

    @classmethod
    def open(
        cls, request: LoadRequest, *, high_watermark: int = 0, random: Random | None = None
    ) -> UnifiedLog:
        """Load a log, and recover it if need be. It costs time only after an unclean stop."""
        loaded = load_log(request)
        local = LocalLog(request, loaded, random or Random())
        return cls(local, loaded, high_watermark)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed: nothing more can be done with it."""
        return self.tail.is_closed

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        """The segments, for reading; only the log changes them."""
        return self._local.segments

    @property
    def truncation_count(self) -> int:
        """Changes whenever records are cut off the end."""
        return self._local.truncation_count

    @property
    def size(self) -> int:
        """Bytes of records on this disk."""
        return self._local.segments.size

    # The offsets.

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.tail.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.tail.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed."""
        return self.tail.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Every transaction before it is decided, and the decision is committed."""
        return self.tail.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        return self.tail.recovery_point

    @property
    def end_metadata(self) -> OffsetMetadata:
        """Where the log ends, with its place in the files."""
        return self._local.end

    def update_high_watermark(self, offset: int) -> int:
        """Set it, within the log; what it is now. A follower's may go back, a leader's does not."""
        self.tail.set_high_watermark(offset)
        return self.tail.high_watermark

    def raise_high_watermark(self, offset: int) -> bool:
        """Move it up; False if it is there already."""
        return self.tail.raise_high_watermark(offset)

    def _bound(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        is_uncommitted = isolation is FetchIsolation.HIGH_WATERMARK
        return self.high_watermark if is_uncommitted else self.last_stable_offset

    # Appending.

    @property
    def validator(self) -> LogValidator:
        """What the topic's settings demand of a client's batch now."""
        return self._appender.validator

    def append_as_leader(
        self,
        records: ReadableBuffer | Inspected,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 2,
    ) -> AppendInfo:
        """Check, number and write records; where they are is in the answer.

        The caller's buffer is changed if it is writable. `guard` proves that the transaction a
        client's batch begins was verified; `transaction_version` is that of a marker.
        """
        self._require_open()
        return self._appender.append_as_leader(
            records, leader_epoch, now_ms, origin, guard, transaction_version
        )

    def append_as_follower(
        self, records: ReadableBuffer, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Write what was fetched from the leader of an epoch, as it is; None if nothing was usable.

        The offsets are the leader's. Batches of a later epoch than the fetch's are left out.
        """
        self._require_open()
        return self._appender.append_as_follower(records, leader_epoch, now_ms)

    def begin_epoch(self, leader_epoch: int) -> None:
        """This broker leads from now on: the epoch begins here, even before any record of it.

        Nothing is written: ten thousand partitions may get a leader at once.
        """
        self._require_open()
        self.epochs.begin(leader_epoch, self.log_end_offset)

    def roll(self, now_ms: int) -> LogSegment:
        """Close the active segment; records go on in a new one. The active one if it is empty."""
        self._require_open()
        with storage_errors(self.directory, "beginning a segment"):
            return self._appender.roll(self.log_end_offset, now_ms)

    # Reading.

    def read(
        self,
        offset: int,
        bytes_max: int,
        isolation: FetchIsolation = FetchIsolation.LOG_END,
        *,
        must_progress: bool = True,
    ) -> FetchData:
        """The records from an offset on, as far as the reader may see them.

        The first batch comes whole, however large, unless `must_progress` is off.
        """
        self._require_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside of the log, which has "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        try:
            return self._reader.read(
                offset,
                bytes_max,
                self._bound(isolation),
                must_progress=must_progress,
                with_aborted=isolation is FetchIsolation.TXN_COMMITTED,
            )
        except OSError as error:
            raise storage_error(self.directory, "reading", error) from error

    def locate(self, offset: int) -> OffsetMetadata:
        """Where an offset is in the files, for who counts bytes between offsets."""
        with storage_errors(self.directory, "reading"):
            return self._reader.locate(offset)

    def offset_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation = FetchIsolation.LOG_END
    ) -> TimedRecord | None:
        """The first record at or after a time, or what a special value of `log_results` names."""
        self._require_open()
        with storage_errors(self.directory, "looking up a timestamp"):
            return self._reader.offset_for_timestamp(
                timestamp, self.log_start_offset, self._bound(isolation), self.epochs
            )

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start_offset, end_offset)."""
        with storage_errors(self.directory, "reading"):
            return self._reader.aborted_transactions(start_offset, end_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where an epoch ended here; its undefined value if the log cannot know."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # The log start and old segments.

    def raise_log_start_offset(self, offset: int) -> bool:
        """Nothing before an offset may be read any more (DeleteRecords); False if that was so.

        The files go when retention comes by. The manager writes the offset to its checkpoint.
        """
        self._require_open()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"the log start cannot become {offset}, the high watermark is {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.tail.log_start_offset = offset
        self.producers.on_log_start(offset)
        self.epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self, now_ms: int) -> list[LogSegment]:
        """Let go of what retention does not keep; the segments, for `delete_files` later.

        They are no longer part of the log, and their files are called `.deleted`.
        """
        self._require_open()
        with storage_errors(self.directory, "deleting old segments"):
            count = count_deletable(
                list(self.segments),
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if count == len(self.segments):
                self._appender.roll(self.log_end_offset, now_ms)
            gone = self._local.remove_first(count) if count else []
            self._reader.forget_positions()
            for segment in gone:
                self.producers.snapshots.remove(segment.base_offset)
        self.raise_log_start_offset(min(self.segments.first.base_offset, self.high_watermark))
        return gone

    def replace_segments(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        """Put a segment that compaction has written in the place of those it was made from.

        The replaced ones are no longer part of the log, as after `delete_old_segments`.
        """
        self._require_open()
        with storage_errors(self.directory, "swapping in a compacted segment"):
            # They may know an open transaction whose marker is not in the compacted log any more;
            # replayed from there it would stay open for ever.
            for segment in replaced:
                self.producers.snapshots.remove(segment.base_offset)
            swap_segments(self._local, cleaned, replaced)
        if cleaned.indexes.transactions.entries():
            self._reader.note_aborted(cleaned.base_offset)
        with storage_errors(self.directory, "noting aborted transactions"):
            self._reader.write_aborted()
        self._reader.forget_positions()

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers that were idle too long; how many."""
        return self.producers.remove_expired(now_ms)

    # Truncation.

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Cut everything from an offset on, durably; False if the log ends before it.

        The manager lowers the recovery point checkpoint first (`lower_recovery_point`), because
        what will be written in the place of the cut records is not on disk.
        """
        self._require_open()
        if offset < 0:
            raise InvalidArgument(f"a log cannot be truncated to {offset}")
        if offset >= self.log_end_offset:
            # An epoch may have begun here without a record: another leader's may be there instead.
            self.epochs.truncate_from_end(offset)
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        with storage_errors(self.directory, "truncating"):
            for segment in self._local.truncate_to(offset, now_ms):
                segment.delete_files()
            self.epochs.truncate_from_end(offset)
            self.epochs.flush()
            replay_producers(self.producers, self.segments, self.log_start_offset, offset, now_ms)
        self._after_truncation()
        return True

    def truncate_fully_and_start_at(
        self, offset: int, now_ms: int, log_start_offset: int | None = None
    ) -> None:
        """Drop every record and go on at an offset."""
        self._require_open()
        with storage_errors(self.directory, "truncating"):
            for segment in self._local.begin_at(offset, now_ms):
                segment.delete_files()
            self.epochs.clear()
            self.epochs.flush()
            self.producers.snapshots.remove_where(lambda _: True)
            self.producers.clear(offset)
        self.tail.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._after_truncation()

    def lower_recovery_point(self, offset: int) -> None:
        """No longer claim that what is at or after an offset is on disk."""
        self._local.lower_recovery_point(offset)

    def _after_truncation(self) -> None:
        self._reader.forget_positions()
        self.update_high_watermark(self.high_watermark)

    # The disk.

    def wants_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a sync."""
        return self._local.wants_flush(now_ms)

    def begin_flush(self) -> SyncJob:
        """What a worker must sync for everything up to now to be on disk."""
        self._require_open()
        with storage_errors(self.directory, "syncing"):
            self.epochs.flush_if_dirty()
            return self._local.begin_flush()

    def finish_flush(self, job: FlushJob) -> None:
        """A job has been done."""
        assert isinstance(job, SyncJob)
        self._local.finish_flush(job)

    def flush(self) -> None:
        """Bring the log to disk now, on this thread."""
        job = self.begin_flush()
        with storage_errors(self.directory, "syncing"):
            job.sync()
        self.finish_flush(job)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings, from the next append on."""
        self._require_open()
        self._local.update_config(config)
        self._appender.update_config(config)

    def sync_with_next_flush(self, path: str) -> None:
        """A flush brings another file to disk, too."""
        self._local.sync_with_next_flush(path)

    def move_to(self, directory: str) -> None:
        """Give the log's directory another name, such as before its deletion."""
        with storage_errors(self.directory, "renaming"):
            self._local.move_to(directory)
            self.epochs.move_to(directory)
            self.producers.snapshots.move_to(directory)

    def release(self) -> None:
        """Give back all descriptors and maps of an idle log; the next use takes new ones."""
        with storage_errors(self.directory, "releasing"):
            self._local.release()

    def close(self) -> None:
        """Bring everything to disk and let go of it; the next start need not recover."""
        if self.tail.is_closed:
            return
        with storage_errors(self.directory, "closing"):
            self.epochs.flush_if_needed()
            if self._local.is_as_loaded:
                self._local.release()
            else:
                self.producers.take_snapshot()
                self._reader.write_aborted()
                self._local.close()
        self.tail.is_closed = True

    def abandon(self) -> None:
        """Let go without touching the disk again: it has failed, or the log is to be deleted."""
        self.tail.is_closed = True

    def _require_open(self) -> None:
        if self.tail.is_closed:
            raise KafkaStorageError(f"{self.directory}: the log is closed")
