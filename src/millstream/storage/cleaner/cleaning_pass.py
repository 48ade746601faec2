"""One pass of compaction over one log: the work of a thread that is not the owner's.

`LogCleaner` makes a pass from what the owner has decided and runs it slice by slice on a worker. A
pass reads the dirty segments to learn the last offset of each key, then writes each group of
segments anew into a `.cleaned` one, and stops there until the owner has swapped it in. It opens
files of its own and never touches the log's objects, so the owner may go on with them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import CorruptMessage, KafkaStorageError
from millstream.records.batch import RecordBatch
from millstream.storage.cleaner.cleaning_plan import group_segments
from millstream.storage.cleaner.compaction import BatchCompactor, CleanedTransactions, index_batch
from millstream.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from millstream.storage.file_names import (
    CLEANED,
    LOG,
    SEGMENT_EXTENSIONS,
    segment_file_name,
)
from millstream.storage.log.batch_scan import find_head, scan_batches
from millstream.storage.log.segment import LogSegment

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from millstream.records.legacy import LegacyBatch
    from millstream.storage.cleaner.cleaning_plan import CleaningPlan, SegmentSpan
    from millstream.storage.cleaner.compaction import LastRecord
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.transaction_index import AbortedTransaction
    from millstream.types import ReadableBuffer

_SLOTS_SPARE: Final = 64


class CleanedGroup(NamedTuple):
    """A segment that is written and on disk, and the bases of those it was made from."""

    segment: LogSegment
    replaced: tuple[SegmentSpan, ...]


class PassEnded(NamedTuple):
    """Everything before an offset is compacted."""

    end_offset: int


Step: TypeAlias = "int | CleanedGroup"
"""Bytes that were read or written, or what the owner must swap in."""


class Slice(NamedTuple):
    """What a slice of a pass has done; `result` is None if it only ran out of its bytes."""

    byte_count: int
    result: CleanedGroup | PassEnded | None


class CleaningAborted(Exception):
    """The owner does not want the result any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRequest:
    """What a pass must know; the owner takes a picture of the log for it."""

    filesystem: FileSystem
    directory: str
    config: LogConfig
    plan: CleaningPlan
    aborted: Sequence[AbortedTransaction]
    last_records: Mapping[int, LastRecord]
    log_start_offset: int
    unsynced_bases: Sequence[int]
    """The segments that may have records which are not on disk, the active one too."""
    now_ms: int
    """The wall time for delete horizons."""
    map_bytes_max: int
    map_load_factor: float
    buffer_bytes: int


@dataclass(slots=True)
class PassCounts:
    """What a pass has done so far."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    key_count: int = 0


@dataclass(slots=True)
class _Writer:
    """A `.cleaned` segment and what is to be written to it next."""

    segment: LogSegment
    buffer_bytes: int
    pending: list[ReadableBuffer] = field(default_factory=list)
    pending_bytes: int = 0

    def add(self, data: ReadableBuffer) -> int:
        """Write a batch, now or with later ones; the bytes that went to the file."""
        self.pending.append(data)
        self.pending_bytes += len(data)
        return self.flush() if self.pending_bytes >= self.buffer_bytes else 0

    def flush(self) -> int:
        """Write what is pending, with one write."""
        written = self.pending_bytes
        if written:
            batches = [RecordBatch(data) for data in self.pending]
            summaries = [(each.size, each.last_offset, each.max_timestamp) for each in batches]
            self.segment.append_batches(b"".join(self.pending), summaries)
            self.pending, self.pending_bytes = [], 0
        return written

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Complete the indexes and bring everything to disk, names too."""
        for transaction in aborted:
            self.segment.indexes.transactions.append(transaction)
        self.segment.seal()
        self.segment.sync()
        self.segment.release()


class CleaningPass:
    """A pass that can be run in slices. One thread at a time; `cancel` is for any."""

    def __init__(self, request: PassRequest) -> None:
        self.counts = PassCounts()
        self.is_cancelled = False
        self._request = request
        self._offsets = self._make_map()
        self._end_offset = request.plan.end_offset
        self._unswapped: LogSegment | None = None
        self._steps = self._work()

    def cancel(self) -> None:
        """Stop soon; whatever comes of the pass must not be used."""
        self.is_cancelled = True

    def run(self, bytes_max: float) -> Slice:
        """Go on for about so many bytes, or to the next group, which is to be swapped in."""
        used = 0
        for step in self._steps:
            if self.is_cancelled:
                raise CleaningAborted
            if isinstance(step, CleanedGroup):
                return Slice(used, step)
            used += step
            if used >= bytes_max:
                return Slice(used, None)
        return Slice(used, PassEnded(self._end_offset))

    def mark_swapped(self) -> None:
        """The segment it gave is part of the log now."""
        self._unswapped = None

    def discard(self) -> None:
        """Remove what was written and not swapped in; the log's directory may have gone."""
        self._steps.close()
        if self._unswapped is not None:
            with suppress(FileNotFoundError):
                self._unswapped.delete_files()
            self._unswapped = None

    def _work(self) -> Generator[Step, None, None]:
        plan = self._request.plan
        self._sync_log()
        yield from self._fill_map()
        self.counts.key_count = len(self._offsets)
        compactor = BatchCompactor(
            self._offsets,
            CleanedTransactions(self._request.aborted),
            self._request.last_records,
            self._request.now_ms,
            self._request.config.delete_retention_ms,
        )
        spans = [span for span in plan.segments if span.base_offset < self._end_offset]
        for group in group_segments(spans, self._request.config):
            yield from self._rewrite(group, compactor)

    def _make_map(self) -> OffsetMap:
        """As large as it can become useful: there is no more than one key per offset."""
        plan, request = self._request.plan, self._request
        offset_count = plan.end_offset - plan.first_dirty_offset
        useful = (int(offset_count / request.map_load_factor) + _SLOTS_SPARE) * ENTRY_BYTES
        return OffsetMap(min(useful, request.map_bytes_max), request.map_load_factor)

    def _sync_log(self) -> None:
        """Bring to disk what will make older records go, and the markers that decided it.

        Otherwise a power loss could take the new value of a key after compaction took the old.
        """
        request = self._request
        for base_offset in request.unsynced_bases:
            for extension in SEGMENT_EXTENSIONS:
                path = f"{request.directory}/{segment_file_name(base_offset, extension)}"
                if request.filesystem.exists(path):
                    request.filesystem.open(path).sync()
        if request.unsynced_bases:
            request.filesystem.sync_directory(request.directory)

    # The map.

    def _fill_map(self) -> Iterator[Step]:
        """Note the keys from the first dirty offset on, until the end or until the map is full."""
        plan = self._request.plan
        transactions = CleanedTransactions(
            each for each in self._request.aborted if each.last_offset >= plan.first_dirty_offset
        )
        self._offsets.latest_offset = plan.first_dirty_offset - 1
        for span in plan.segments:
            if span.next_base_offset <= plan.first_dirty_offset:
                continue
            for batch in self._batches(span, plan.first_dirty_offset):
                if not index_batch(batch, self._offsets, transactions, plan.first_dirty_offset):
                    self._end_map_early(batch)
                    return
                self.counts.map_bytes_read += batch.size
                yield batch.size
        self._offsets.latest_offset = plan.end_offset - 1

    def _end_map_early(self, batch: RecordBatch | LegacyBatch) -> None:
        self._end_offset = self._offsets.latest_offset + 1
        if self._end_offset <= self._request.plan.first_dirty_offset:
            raise KafkaStorageError(
                f"the batch at offset {batch.base_offset} has more keys than the "
                f"{self._offsets.capacity} that log.cleaner.dedupe.buffer.size has room for; "
                "increase it, or decrease log.cleaner.threads"
            )

    # The segments.

    def _rewrite(self, group: list[SegmentSpan], compactor: BatchCompactor) -> Iterator[Step]:
        writer = _Writer(self._create_segment(group[0].base_offset), self._request.buffer_bytes)
        for span in group:
            for batch in self._batches(span):
                # Nobody can read what is before the log start, and to which transaction it
                # belonged may not be known any more: an open one would be seen in it for ever.
                is_readable = batch.last_offset >= self._request.log_start_offset
                kept = compactor.compact(batch) if is_readable else None
                self.counts.bytes_read += batch.size
                yield batch.size
                if kept is not None:
                    yield self._count_written(writer.add(kept))
        yield self._count_written(writer.flush())
        aborted = compactor.transactions.retained_aborted
        writer.finish(aborted)
        aborted.clear()
        yield CleanedGroup(writer.segment, tuple(group))

    def _create_segment(self, base_offset: int) -> LogSegment:
        request = self._request
        self._unswapped = segment = LogSegment.create(
            request.filesystem,
            request.directory,
            base_offset,
            replace(request.config, preallocate=False),
            request.now_ms,
            suffix=CLEANED,
        )
        return segment

    def _count_written(self, byte_count: int) -> int:
        self.counts.bytes_written += byte_count
        return byte_count

    def _batches(
        self, span: SegmentSpan, from_offset: int = 0
    ) -> Iterator[RecordBatch | LegacyBatch]:
        """The batches of a closed segment from an offset on, each with the right checksum."""
        request = self._request
        path = f"{request.directory}/{segment_file_name(span.base_offset, LOG)}"
        file = request.filesystem.open(path)
        position = 0
        if from_offset > span.base_offset:
            head = find_head(file, 0, span.size, from_offset)
            position = span.size if head is None else head.position
        for position_of, batch in scan_batches(file, position, span.size, request.buffer_bytes):
            batch.check_crc()
            yield batch
            position = position_of + batch.size
        if position != span.size:
            raise CorruptMessage(f"{path}, byte {position}: no batch begins here")
