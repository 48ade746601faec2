"""The fields of a handle, for the accumulator that makes it."""

from libc.stdint cimport int64_t


cdef class Delivery:
    cdef object _batch
    cdef int64_t _index
    cdef int64_t _timestamp
