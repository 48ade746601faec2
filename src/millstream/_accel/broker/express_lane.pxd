"""The short way into a log for the other extension modules; see express_lane.pyx."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.client_batch cimport BatchFields
from millstream._accel.broker.files cimport iovec
from millstream._accel.broker.log_writers cimport ms_write

cdef enum:
    # What `stage` gives for a batch that has to go the long way,
    LANE_DECLINED = -1
    # and for one that can only be judged when what is staged was committed. It has changed nothing
    # then. It leaves out the checksum of a batch that is known to be intact.
    LANE_BUSY = -2

cdef struct StagedBatch:
    int64_t size
    int64_t last_offset
    BatchFields fields

cdef class ExpressLane:
    cdef object _local
    cdef object _producers
    cdef object _epochs
    cdef int64_t _future_max_ms
    cdef int64_t _size_max
    cdef int64_t _own_size_max

    # What was staged, and the state of the log as it was found.
    cdef object _segment
    cdef object _indexes
    cdef StagedBatch* _batches
    cdef iovec* _parts
    cdef int _count
    cdef int _capacity
    cdef int _count_max
    cdef int64_t _now_ms
    cdef int64_t _epoch
    cdef int64_t _position
    cdef int64_t _next_position
    cdef int64_t _next_offset
    cdef int64_t _position_max
    cdef int64_t _offset_max
    cdef int64_t _timestamp_max
    # For whoever stages into several logs: which of them this is, -1 for none.
    cdef int place

    cdef bint _begin(self, int64_t now_ms) except -1
    cdef bint _is_next(self, BatchFields* fields) except -1
    cdef bint _is_next_in_log(self, BatchFields* fields) except -1
    cdef int _record_producers(self, int count) except -1
    cdef int _make_ready(self, segment) except -1
    cdef int _reserve(self) except -1
    cdef int64_t stage(
        self, uint8_t* batch, int64_t size, int64_t leader_epoch, int64_t now_ms,
        bint is_own, bint is_known_intact) except -3
    cdef bint plan(self, ms_write* write) except -1
    cdef int commit(self, ms_write* written) except -1
    cdef int _write(self, ms_write* written) except -1
    cdef list _views(self)
    cdef int _note_batches(self) except -1
