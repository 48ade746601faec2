"""What a log keeps in memory, as typed fields; see log_state.pyx."""

from libc.stdint cimport INT32_MAX, int64_t

from millstream._accel.broker.client_batch cimport BatchFields
from millstream._accel.broker.files cimport iovec

cdef enum:
    BATCHES_KEPT = 5

cdef inline int64_t sequence_after(int64_t sequence, int64_t count) noexcept:
    """Sequences go up to INT32_MAX and begin again at 0."""
    return (sequence + count) & INT32_MAX

cdef class WakeState:
    # Whether changes of high watermarks are noticed without a wake-up.
    cdef public bint is_awake

cdef class FileState:
    # -1 once the file is closed.
    cdef public int descriptor
    # An append that ends further on asks `preallocate` first.
    cdef public int64_t preallocated_end

cdef class IndexState:
    cdef readonly int64_t base_offset
    cdef public int64_t entry_count_max
    # How many entries there are, those of `pending` included; -1 before anybody has looked.
    cdef public int64_t known_count
    # The entries that are not in the file yet, as they will be written.
    cdef public bytearray pending
    # The last entry as two numbers; None where it is not known.
    cdef public tuple last
    # The entries in the file, if it is mapped.
    cdef public object mapped

    cdef bint _has_room(self, int64_t offset, int64_t entry_bytes) noexcept
    cdef int _add(self, int64_t first, int first_bytes, int64_t second, int second_bytes) except -1

cdef class SegmentIndexState:
    cdef public IndexState offsets
    cdef public IndexState times
    cdef public int64_t interval_bytes
    cdef public int64_t bytes_since_entry
    cdef public int64_t largest_timestamp
    cdef public int64_t largest_offset
    cdef public bint is_full

    cdef int note(
        self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp) except -1
    cdef bint _add_ordinary(self, int64_t last_offset, int64_t position) except -1

cdef class SegmentState:
    cdef public int64_t base_offset
    # The bytes that count; what the file has beyond them is never read.
    cdef public int64_t size
    cdef public int64_t size_max
    cdef public int64_t age_max_ms
    cdef public int64_t created_ms
    # That of the first batch; UNREAD before anybody has looked, negative if it has none.
    cdef public int64_t first_timestamp
    # Whether the indexes were looked at.
    cdef public bint is_ready
    # Whether its files are not yet cut to their content.
    cdef public bint is_changed
    # None while it is not open. Only a `FileState` can be used without Python.
    cdef public object file
    cdef public SegmentIndexState indexes

    cdef int write(self, iovec* parts, int count, int64_t size) except -1
    cdef int _cut(self) except -1

cdef class SegmentList:
    # Sorted by base offset, the last one is active.
    cdef public list segments
    cdef public list bases

    cdef SegmentState active_segment(self)
    cdef SegmentState floor_segment(self, int64_t offset)

cdef class EpochState:
    # Pairs of epoch and first offset, oldest first.
    cdef public list _entries
    # Whether the checkpoint is not what it should be.
    cdef public bint is_dirty

    cdef int64_t noted_epoch(self) except -2

cdef struct KeptBatch:
    int64_t last_sequence
    int64_t last_offset
    int64_t offset_delta
    int64_t timestamp

cdef class ProducerState:
    cdef readonly int64_t producer_id
    cdef public int64_t epoch
    cdef public int64_t coordinator_epoch
    cdef public int64_t last_timestamp
    # None outside of transactions.
    cdef public object transaction_first_offset
    cdef KeptBatch _kept[BATCHES_KEPT]
    cdef int _count

    cdef int add(
        self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta,
        int64_t timestamp) except -1
    cdef bint is_followed_by(self, BatchFields* fields) noexcept

cdef class ProducersState:
    cdef public dict _producers
    # First offset of an open transaction to its producer's id, in order of the offsets.
    cdef public dict _ongoing
    # (first offset, last offset) of transactions whose marker is not committed, sorted.
    cdef public list _completed
    # The verifications that are going on, by producer id.
    cdef public dict _verifying
    # The state covers every record before this offset.
    cdef public int64_t end_offset

    cdef ProducerState find(self, int64_t producer_id)
    cdef int64_t first_unstable(self) except -2
