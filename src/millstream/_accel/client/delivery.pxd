"""The fields of a handle, for the accumulator that makes it."""

from libc.stdint cimport int64_t


cdef class BatchOutcome:
    cdef public object topic
    cdef public int64_t partition
    cdef public bint is_done
    cdef public int64_t base_offset
    cdef public int64_t log_append_time
    cdef public object error
    cdef public list parts


cdef class Delivery:
    cdef BatchOutcome _batch
    cdef int64_t _index
    cdef int64_t _timestamp

    cdef bint _is_well(self) noexcept
    cdef object _metadata(self)
