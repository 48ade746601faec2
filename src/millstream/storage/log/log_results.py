"""What a log answers: the values that `UnifiedLog` takes and gives besides plain numbers.

The replica manager and the request handlers read them. Nothing here does anything.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSlice
    from millstream.storage.log.transaction_index import AbortedTransaction

LATEST_TIMESTAMP: Final = -1
"""ListOffsets: the end, as far as the asker may read."""
EARLIEST_TIMESTAMP: Final = -2
"""ListOffsets: the first offset."""
MAX_TIMESTAMP: Final = -3
"""ListOffsets: the record with the largest timestamp."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""ListOffsets: the first offset on this disk."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""ListOffsets: the last offset in tiered storage."""
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
"""ListOffsets: the first offset that is still to be copied to tiered storage."""

NO_TIMESTAMP: Final = -1


class FetchIsolation(Enum):
    """How far a reader may read."""

    LOG_END = "log end"
    """Replicas: everything."""
    HIGH_WATERMARK = "high watermark"
    """Consumers: what is committed."""
    TXN_COMMITTED = "transactions committed"
    """Consumers with read_committed: up to the first undecided transaction."""


class AppendInfo(NamedTuple):
    """What became of an append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic's timestamps are set by the broker."""
    byte_count: int
    is_duplicate: bool = False
    """It was in the log already: the offsets are those of the first time."""
    wants_flush: bool = False
    """The log asks to be synced: a segment was closed, or `flush.messages` is reached."""


class OffsetMetadata(NamedTuple):
    """An offset and where it is: two of one segment tell how many bytes lie between them."""

    offset: int
    segment_base_offset: int
    position: int

    def is_on_older_segment_than(self, other: OffsetMetadata) -> bool:
        """Whether whole segments may lie between."""
        return self.segment_base_offset < other.segment_base_offset

    def bytes_before(self, other: OffsetMetadata) -> int:
        """How many bytes lie between this and a later one of the same segment."""
        assert self.segment_base_offset == other.segment_base_offset
        return other.position - self.position


class FetchData(NamedTuple):
    """What a read found. The bytes begin with the batch that holds the offset asked for."""

    start: OffsetMetadata
    records: FileSlice | None
    """The bytes; None if there are none to read."""
    is_first_batch_incomplete: bool = False
    """The limit is smaller than the first batch, of which only a part is there."""
    aborted_transactions: tuple[AbortedTransaction, ...] | None = None
    """For read_committed; None for the others."""

    @property
    def size(self) -> int:
        """How many bytes."""
        return 0 if self.records is None else self.records.length
