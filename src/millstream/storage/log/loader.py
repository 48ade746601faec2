"""From a directory's files to a consistent log, whatever happened to them.

`UnifiedLog.open` runs it, on a worker thread if the manager likes: nobody else knows the log yet.
After a clean stop it lists the files and reads the end of the last segment. After any other it
verifies every batch from the recovery point on, cuts at the first byte that is wrong, removes the
segments behind the cut, and rebuilds indexes, epochs and producers from what is left. It changes
nothing that is right, so doing it again, or being killed in the middle, ends in the same log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import CorruptMessage
from millstream.records.batch import RecordBatch
from millstream.storage.checkpoint import ABORTED_FILE
from millstream.storage.faults import storage_errors
from millstream.storage.file_names import (
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_file_name,
)
from millstream.storage.log.aborted_checkpoint import find_damaged, write_aborted
from millstream.storage.log.batch_scan import scan_good_batches
from millstream.storage.log.epoch_cache import LeaderEpochCache
from millstream.storage.log.leftovers import settle_leftovers
from millstream.storage.log.producer_replay import replay_batch, replay_producers
from millstream.storage.log.producer_state import ProducerStateManager
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.segments import LogSegments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.records.legacy import LegacyBatch
    from millstream.storage.file_names import SegmentFileName
    from millstream.storage.filesystem import FileStatus, FileSystem
    from millstream.storage.log.config import LogConfig

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is known about a log before its files are looked at."""

    filesystem: FileSystem
    directory: str
    config: LogConfig
    now_ms: int
    log_start_offset: int = 0
    """The checkpointed log start; the files may begin later."""
    recovery_point: int = 0
    """The checkpointed offset up to which the disk certainly has everything."""
    cleaned_to: int = 0
    """Compaction has been here, up to this offset; perhaps before the topic's policy changed."""
    is_clean: bool = False
    """Whether the last process closed the log in order: then nothing is verified."""
    is_new: bool = False
    """Whether the log is being made: the first flush brings its files and their names to disk."""
    producer_expiration_ms: int = 86_400_000
    verifies_transactions: bool = True
    progress: Callable[[int, int], None] | None = None
    """Told (segments recovered, segments to recover) as recovery goes on."""
    before_loss: Callable[[int, int, int], None] | None = None
    """Told of what is to be cut off, before it is: (base offset of the segment, byte in it,
    offset of the first record that is lost). It may raise: then no record has been touched."""


@dataclass(slots=True)
class LoadedLog:
    """A log that is consistent."""

    segments: LogSegments
    producers: ProducerStateManager
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    """Everything before it is verified and on disk."""
    aborted_base_offsets: list[int]
    """The segments that may have aborted transactions."""


def load_log(request: LoadRequest) -> LoadedLog:
    """Load the log of a directory; an empty or missing one becomes an empty log."""
    with storage_errors(request.directory, "loading the log"):
        return _LogLoader(request).load()


class _LogLoader:
    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._filesystem = request.filesystem
        self._directory = request.directory
        self._are_names_changed = False
        self._is_cut = False
        self._recovered: list[LogSegment] = []
        self._reindexed: list[LogSegment] = []

    def load(self) -> LoadedLog:
        request = self._request
        self._filesystem.make_directory(self._directory)
        entries = settle_leftovers(
            self._filesystem, self._directory, request.config, was_clean=request.is_clean
        )
        names = [
            (name, status)
            for status in entries
            if (name := parse_segment_file_name(status.name)) is not None
        ]
        self._segments = LogSegments(
            self._open_segment(name.base_offset, status)
            for name, status in names
            if name.extension == LOG
        )
        self._epochs = LeaderEpochCache.load(self._filesystem, self._directory)
        self._producers = self._new_producer_state(
            name.base_offset for name, _ in names if name.extension == SNAPSHOT
        )
        first_base = self._segments.first.base_offset if len(self._segments) else 0
        self._log_start = max(request.log_start_offset, first_base)
        end_offset = self._load_clean() if request.is_clean else self._recover()
        if request.is_clean:
            self._tell_missing(names, end_offset)
        if end_offset < self._log_start:
            end_offset = self._begin_anew()
        self._mend_transaction_indexes(
            {name.base_offset for name, _ in names if name.extension == TRANSACTION_INDEX},
            has_table=any(status.name == ABORTED_FILE for status in entries),
        )
        self._settle_epochs(end_offset)
        self._settle_producers(end_offset)
        self._sync_recovered()
        if self._are_names_changed and not request.is_new:
            self._filesystem.sync_directory(self._directory)
        return LoadedLog(
            self._segments,
            self._producers,
            self._epochs,
            self._log_start,
            end_offset,
            self._aborted_base_offsets(name for name, _ in names),
        )

    def _open_segment(self, base_offset: int, status: FileStatus) -> LogSegment:
        """Touches no file: a segment that is not verified looks at its indexes when first used."""
        return LogSegment(
            self._filesystem,
            self._directory,
            base_offset,
            self._request.config,
            size=status.size,
            created_ms=status.modified_ms,
        )

    def _new_producer_state(self, snapshot_offsets: Iterable[int]) -> ProducerStateManager:
        return ProducerStateManager(
            self._filesystem,
            self._directory,
            expiration_ms=self._request.producer_expiration_ms,
            verifies_transactions=self._request.verifies_transactions,
            snapshot_offsets=snapshot_offsets,
        )

    def _load_clean(self) -> int:
        if not len(self._segments):
            return self._begin_anew()
        try:
            return self._segments.active.read_next_offset()
        except CorruptMessage as error:
            _logger.warning(
                "%s was closed in order and is damaged all the same, recovering: %s",
                self._directory,
                error,
            )
            return self._recover()

    def _tell_missing(
        self, names: Iterable[tuple[SegmentFileName, FileStatus]], end_offset: int
    ) -> None:
        """Say which records were there when the log was closed and are not now."""
        indexed = {
            name.base_offset
            for name, status in names
            if name.extension == TIME_INDEX and status.size
        }
        for segment in self._segments:
            if not segment.size and segment.base_offset in indexed:
                _logger.error(
                    "%s: the segment at %d is empty, though its index is not; its records are lost "
                    "unless another replica or a backup has them",
                    self._directory,
                    segment.base_offset,
                )
        if end_offset < self._request.recovery_point:
            _logger.error(
                "%s ends at offset %d, it was closed at %d: what is missing is lost unless another "
                "replica or a backup has it",
                self._directory,
                end_offset,
                self._request.recovery_point,
            )

    def _aborted_base_offsets(self, names: Iterable[SegmentFileName]) -> list[int]:
        """The segments that had a transaction index, or got one now."""
        found = {name.base_offset for name in names if name.extension == TRANSACTION_INDEX}
        found.update(
            segment.base_offset
            for segment in (*self._recovered, *self._reindexed)
            if segment.indexes.transactions.entries()
        )
        return sorted(found)

    # After an unclean stop.

    def _recover(self) -> int:
        """Verify what may not be on disk; the offset after the last good record."""
        if not len(self._segments):
            return self._begin_anew()
        # One that ends at the recovery point was perhaps closed after it was synced.
        doubtful = self._segments.from_offset(max(self._request.recovery_point - 1, 0))
        next_offset = doubtful[0].base_offset
        self._cut_epochs(next_offset)
        replay_producers(
            self._producers,
            self._segments,
            max(self._log_start, self._segments.first.base_offset),
            next_offset,
            self._request.now_ms,
        )
        for number, segment in enumerate(doubtful):
            if segment.base_offset < next_offset:
                # A duplicate, or a new one that failed; what follows shows whether it matters.
                self._drop([segment], f"the records before it go up to {next_offset}")
                continue
            if self._is_behind_a_hole(segment, next_offset):
                self._announce_loss(segment, 0, next_offset)
                self._drop(doubtful[number:], f"the records before it end at {next_offset}")
                break
            next_offset = self._recover_segment(segment)
            self._recovered.append(segment)
            self._report(number + 1, len(doubtful))
        return next_offset

    def _is_behind_a_hole(self, segment: LogSegment, next_offset: int) -> bool:
        """Whether records are missing before a segment.

        A power loss may take the end of a segment, or all of it, and leave the next. What is
        behind such a hole must go, or readers would miss records without knowing. Below the
        recovery point nothing can be lost that way. Where compaction is or was at work a hole may
        be the cleaner's, and proves something only behind a cut. A cut without a hole took
        nothing but zeros that were waiting for records.
        """
        if segment.base_offset <= max(next_offset, self._request.recovery_point):
            return False
        may_be_the_cleaners = (
            self._request.config.is_compacted or segment.base_offset <= self._request.cleaned_to
        )
        return self._is_cut or not may_be_the_cleaners

    def _recover_segment(self, segment: LogSegment) -> int:
        """Verify a segment, and cut off what is not right; the offset after it."""
        next_offset = segment.base_offset
        self._producers.advance_to(max(self._producers.end_offset, segment.base_offset))
        self._producers.take_snapshot()

        def on_batch(batch: RecordBatch | LegacyBatch) -> None:
            nonlocal next_offset
            if isinstance(batch, RecordBatch):
                replay_batch(self._producers, batch, segment)
                if batch.leader_epoch > self._epochs.latest_epoch:
                    self._epochs.assign_in_memory(batch.leader_epoch, batch.base_offset)
            next_offset = batch.last_offset + 1

        def before_cut(position: int) -> None:
            self._announce_loss(segment, position, next_offset)

        self._is_cut = segment.recover(on_batch, before_cut) > 0
        self._producers.advance_to(next_offset)
        return next_offset

    def _announce_loss(self, segment: LogSegment, position: int, next_offset: int) -> None:
        if self._request.before_loss is not None:
            self._request.before_loss(segment.base_offset, position, next_offset)

    def _sync_recovered(self) -> None:
        """What was found good is made certain, so that a later crash cannot take it back.

        Nor bring anything else back: a process may have died while it truncated the log, and
        what it cut off must not reappear behind records that were written since.
        """
        for segment in self._recovered:
            if segment in self._segments:
                if segment is not self._segments.active:
                    segment.seal()
                    segment.sync()
                    segment.release()
                else:
                    segment.sync_log()
                self._are_names_changed = True

    def _drop(self, segments: list[LogSegment], reason: str) -> None:
        for segment in segments:
            _logger.warning(
                "%s: removing the segment at %d: %s", self._directory, segment.base_offset, reason
            )
            segment.delete_files()
            self._are_names_changed = True
        self._segments.remove(segments)

    def _begin_anew(self) -> int:
        """No records are left at or after the log start: one empty segment there."""
        self._drop(list(self._segments), f"it ends before the log start {self._log_start}")
        self._segments.add(
            LogSegment.create(
                self._filesystem,
                self._directory,
                self._log_start,
                self._request.config,
                self._request.now_ms,
            )
        )
        self._are_names_changed = True
        return self._log_start

    # What belongs to the segments.

    def _mend_transaction_indexes(self, indexed: set[int], *, has_table: bool) -> None:
        """Rebuild those that are not what they were, in segments that were not recovered."""
        if not indexed and not has_table:
            return
        unverified = [each for each in self._segments if each not in self._recovered]
        damaged = find_damaged(self._filesystem, self._directory, unverified, indexed)
        for segment, problem in damaged:
            _logger.warning(
                "rebuilding the index of aborted transactions of the segment at %d: %s",
                segment.base_offset,
                problem,
            )
            self._rebuild_transaction_index(segment)
        if damaged:
            self._reindexed = [segment for segment, _ in damaged]
            write_aborted(self._filesystem, self._directory, self._segments)
            self._are_names_changed = True

    def _rebuild_transaction_index(self, segment: LogSegment) -> None:
        replay_producers(
            self._producers,
            self._segments,
            max(self._log_start, self._segments.first.base_offset),
            segment.base_offset,
            self._request.now_ms,
        )
        index = segment.indexes.transactions
        index.clear()
        for _, batch in scan_good_batches(
            segment.open_file(), segment.size, segment.base_offset, is_verifying=False
        ):
            if isinstance(batch, RecordBatch):
                replay_batch(self._producers, batch, segment)
        index.sync()
        segment.release()

    def _settle_epochs(self, end_offset: int) -> None:
        """No epoch outside the log; on disk only if that changes something."""
        self._cut_epochs(end_offset)
        self._epochs.truncate_from_start(self._log_start)
        self._epochs.flush_if_dirty()

    def _cut_epochs(self, end_offset: int) -> None:
        """Forget epochs after the end; an empty log still knows which epoch was its last."""
        is_empty = end_offset <= self._log_start
        self._epochs.truncate_from_end(end_offset + 1 if is_empty else end_offset)

    def _settle_producers(self, end_offset: int) -> None:
        self._producers.snapshots.remove_strays(self._segments.base_offsets)
        replay_producers(
            self._producers, self._segments, self._log_start, end_offset, self._request.now_ms
        )

    def _report(self, done: int, total: int) -> None:
        if self._request.progress is not None:
            self._request.progress(done, total)
