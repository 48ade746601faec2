"""What a log keeps in memory: its segments, indexes, epochs and producers, field by field.

`LogSegment`, `SparseIndex`, `ProducerEntry` and others of this package inherit from these. Where
the kernel was built the bases are those of `_accel.broker.log_state`, with typed fields that
compiled code reads and writes; otherwise they are the plain ones here. So there is one copy of the
state, whoever asks.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream import _accel
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.storage.filesystem import File, MappedBuffer
    from millstream.types import ReadableBuffer

    BatchSummary: TypeAlias = tuple[int, int, int]
    """What a segment has to know of a batch: its size, last offset and largest timestamp."""

__all__ = [
    "EpochState",
    "FileState",
    "IndexState",
    "ProducerState",
    "ProducersState",
    "SegmentIndexState",
    "SegmentList",
    "SegmentState",
    "WakeState",
]

BATCHES_KEPT: Final = 5
"""How many batches a retry may be recognised among; clients send at most as many at a time."""
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
"""How far an offset may be from its segment's base."""
UNREAD: Final = -(1 << 63)
"""The first timestamp of a segment that nobody has looked for."""
UNKNOWN: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


class WakeState:
    """Whether somebody looks after high watermarks from time to time, or has to be woken."""

    __slots__ = ("is_awake",)

    def __init__(self) -> None:
        self.is_awake = True
        """Whether changes are noticed without a wake-up."""


class FileState:
    """A file of the operating system's."""

    __slots__ = ("descriptor", "preallocated_end")

    def __init__(self) -> None:
        self.descriptor = -1
        """-1 once the file is closed."""
        self.preallocated_end = 0
        """An append that ends further on asks `preallocate` first."""


class IndexState:
    """The entries of a sparse index: those in its file and those that wait in memory."""

    __slots__ = ("base_offset", "entry_count_max", "known_count", "last", "mapped", "pending")

    def __init__(self, base_offset: int, entry_count_max: int) -> None:
        self.base_offset = base_offset
        self.entry_count_max = entry_count_max
        self.known_count = UNKNOWN
        """How many entries there are, those of `pending` included; -1 before anybody has looked."""
        self.pending = bytearray()
        """The entries that are not in the file yet, as they will be written."""
        self.last: tuple[int, int] | None = None
        """The last entry, where it is known."""
        self.mapped: MappedBuffer | None = None
        """The entries in the file, if it is mapped."""


class SegmentIndexState:
    """When the indexes of a segment get their entries, and the largest timestamp so far."""

    __slots__ = (
        "bytes_since_entry",
        "interval_bytes",
        "is_full",
        "largest_offset",
        "largest_timestamp",
        "offsets",
        "times",
    )

    def __init__(self) -> None:
        self.offsets: Any
        self.times: Any
        self.interval_bytes = self.bytes_since_entry = 0
        self.largest_timestamp = self.largest_offset = 0
        self.is_full = False

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was written: remember its time, and add entries if they are due."""
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_offset = last_offset
        if self.bytes_since_entry > self.interval_bytes:
            self.add_entries(last_offset, position)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def add_entries(self, last_offset: int, position: int) -> None:
        """Add what is due to both sparse indexes."""
        raise NotImplementedError


class SegmentState:
    """The records from a base offset on: what of the file counts, and when it is full."""

    __slots__ = (
        "age_max_ms",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "indexes",
        "is_changed",
        "is_ready",
        "size",
        "size_max",
    )

    def __init__(self) -> None:
        self.base_offset = self.created_ms = 0
        self.size = 0
        """The bytes that count; what the file has beyond them is never read."""
        self.size_max = self.age_max_ms = 0
        self.first_timestamp = UNREAD
        """That of the first batch; negative if it has none, or before anybody has looked."""
        self.file: File | None = None
        self.indexes: Any
        self.is_ready = False
        """Whether the indexes were looked at."""
        self.is_changed = False
        """Whether its files are not yet cut to their content."""

    def append(self, data: ReadableBuffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch, whose header has its final offsets. All or nothing."""
        self.append_batches(data, ((len(data), last_offset, max_timestamp),))

    def append_batches(self, data: ReadableBuffer, batches: Sequence[BatchSummary]) -> None:
        """Write batches with one write, each given as size, last offset and largest timestamp."""
        for _, last_offset, _ in batches:
            self._require_near(last_offset)
        if sum(size for size, _, _ in batches) != len(data):
            raise InvalidArgument("the batches do not fill the bytes to append")
        self._write(data)
        for size, last_offset, max_timestamp in batches:
            self.indexes.note_batch(self.size, size, last_offset, max_timestamp)
            self.size += size

    def should_roll(
        self, incoming_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch belongs into a new segment: by size, age, a full index or its offset."""
        is_too_far = last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        if incoming_bytes > self.size_max - self.size or is_too_far or self.indexes.is_full:
            return True
        return self.size > 0 and self.age_ms(max_timestamp, now_ms) > self.age_max_ms

    def age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How old the segment is, by its records' own time if they have one."""
        if self.first_timestamp == UNREAD and self.size:
            self.read_first_timestamp()
        if self.first_timestamp < 0:
            return now_ms - self.created_ms
        return max_timestamp - self.first_timestamp

    def make_ready(self) -> None:
        """Open the log file, and look at the indexes and at the first timestamp."""
        raise NotImplementedError

    def read_first_timestamp(self) -> None:
        """Find out `first_timestamp`."""
        raise NotImplementedError

    def _require_near(self, last_offset: int) -> None:
        if not 0 <= last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
            raise InvalidArgument(
                f"offset {last_offset} is too far from the segment's base {self.base_offset}"
            )

    def _write(self, data: ReadableBuffer) -> None:
        if not self.is_ready or self.file is None:
            self.make_ready()
        assert self.file is not None
        self.is_changed = True
        try:
            self.file.append(data, self.size)
        except OSError:
            # What is in the file is beyond `size`: never read, and overwritten by the next append.
            with suppress(OSError):
                self.file.truncate(self.size)
            raise


class SegmentList:
    """The segments of a log, in order, and where each of them begins."""

    __slots__ = ("bases", "segments")

    def __init__(self) -> None:
        self.segments: list[Any] = []
        """Sorted by base offset; the last one is active."""
        self.bases: list[int] = []
        """Their base offsets."""


class EpochState:
    """Which leader epoch began at which offset."""

    __slots__ = ("_entries", "is_dirty")

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self.is_dirty = False
        """Whether the checkpoint is not what it should be: to be flushed, or flushed again."""


class ProducerState:
    """One producer's epoch, last batches and open transaction."""

    __slots__ = (
        "_kept",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset: int | None = None
        self._kept: deque[tuple[int, int, int, int]] = deque(maxlen=BATCHES_KEPT)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record of the current epoch, or -1."""
        return self._kept[-1][0] if self._kept else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of that record, or -1."""
        return self._kept[-1][1] if self._kept else -1

    def kept_batches(self) -> list[tuple[int, int, int, int]]:
        """The batches that a retry is recognised among, oldest first, each as four numbers."""
        return list(self._kept)

    def add_batch(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        """A batch of the current epoch is in the log; the oldest one is forgotten for it."""
        self._kept.append((last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

    def move_to_epoch(self, epoch: int) -> None:
        """Begin an epoch: the batches of another one cannot be retried any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._kept.clear()


class ProducersState:
    """The producers of a log and their transactions."""

    __slots__ = ("_completed", "_ongoing", "_producers", "_verifying", "end_offset")

    def __init__(self) -> None:
        self._producers: dict[int, Any] = {}
        # First offset to producer id. Records arrive in order of their offsets, so the first
        # key is always the smallest.
        self._ongoing: dict[int, int] = {}
        # (first offset, last offset) of transactions whose marker the high watermark has not
        # passed, sorted. They still hold the last stable offset back.
        self._completed: list[tuple[int, int]] = []
        # The verifications that are going on, by producer id.
        self._verifying: dict[int, Any] = {}
        self.end_offset = 0
        """The state covers every record before this offset."""

    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open or whose marker is not committed."""
        ongoing = next(iter(self._ongoing), None)
        if not self._completed:
            return ongoing
        first_completed = self._completed[0][0]
        return first_completed if ongoing is None else min(ongoing, first_completed)


if not TYPE_CHECKING and _accel.find("broker.log_state"):
    from millstream._accel.broker.log_state import (
        EpochState,
        FileState,
        IndexState,
        ProducersState,
        ProducerState,
        SegmentIndexState,
        SegmentList,
        SegmentState,
        WakeState,
    )
