"""Where a log grows, for the other extension modules; see log_tail.pyx."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.client_batch cimport BatchFields
from millstream._accel.broker.files cimport iovec
from millstream._accel.broker.log_state cimport (
    EpochState, ProducersState, SegmentList, SegmentState, WakeState)

cdef enum:
    # What `prepare` gives for a batch that has to take the full path,
    TAIL_DECLINED = -1
    # and for one that can only be judged when what is prepared was appended. It has changed nothing
    # then.
    TAIL_BUSY = -2

cdef struct PreparedBatch:
    int64_t size
    int64_t last_offset
    BatchFields fields

cdef class LogTail:
    cdef readonly SegmentList segments
    cdef readonly ProducersState producers
    cdef readonly EpochState epochs
    # Who is woken when the high watermark moves after a quiet time.
    cdef public WakeState wakeup
    cdef public bint is_closed
    # Whether a transaction was aborted in any segment.
    cdef public bint has_aborted
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef readonly int64_t high_watermark
    # Everything before it is on disk.
    cdef public int64_t recovery_point
    # When the first record was appended that no flush has taken up.
    cdef public int64_t dirty_since_ms
    # What the topic's settings mean for the fast path: how large a batch may be (0: none may come),
    # and how far ahead of the time its timestamps.
    cdef public int64_t fast_size_max
    cdef public int64_t fast_future_max_ms
    # Whether a compressed batch has sound records, for a memoryview of it.
    cdef public object is_sound

    # What was prepared, and the state of the log as it was found.
    cdef SegmentState _segment
    cdef PreparedBatch* _batches
    cdef iovec* _parts
    cdef int _count
    cdef int _capacity
    cdef int _count_max
    cdef int64_t _now_ms
    cdef int64_t _epoch
    cdef int64_t _next_position
    cdef int64_t _next_offset
    cdef int64_t _offset_max
    cdef int64_t _timestamp_max
    # For a caller that prepares for several logs: which of them this is, -1 for none.
    cdef int place

    cdef int64_t last_stable(self) except -1
    cdef int64_t prepare(
        self, uint8_t* batch, int64_t size, int64_t leader_epoch, int64_t now_ms) except -3
    cdef int64_t next_offset(self) noexcept
    cdef int append_prepared(self) except -1
    cdef int move_high_watermark(self, int64_t offset) except -1
    cdef bint raise_watermark(self, int64_t offset) except -1
    cdef int _note_appended(self, int64_t end_offset, int64_t now_ms) noexcept
    cdef bint _begin(self, int64_t now_ms) except -1
    cdef bint _has_sound_records(self, uint8_t* batch, int64_t size) except -1
    cdef bint _is_next(self, BatchFields* fields) except -1
    cdef int _reserve(self) except -1
    cdef int _note_batches(self, SegmentState segment, int count) except -1
