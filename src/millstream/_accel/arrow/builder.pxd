"""The builder of Arrow columns for the other extension modules."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from millstream._accel.wire cimport ms_fault

cdef extern from "arrow/columns.h" nogil:
    ctypedef struct ms_buffer:
        int64_t size

    ctypedef struct ms_strings:
        ms_buffer bytes

    ctypedef struct ms_columns:
        int64_t row_count
        int64_t expected
        int left_out
        ms_strings key
        ms_strings value
        ms_strings header_key
        ms_strings header_value

    ctypedef uint32_t (*ms_checksum)(uint32_t seed, const uint8_t* data, size_t size) noexcept nogil

    ctypedef struct ms_append_job:
        const uint8_t* body
        int64_t size
        int64_t count
        int64_t base_offset
        int64_t base_timestamp
        int64_t append_timestamp
        int64_t from_offset
        int64_t to_offset
        int32_t partition
        bint has_append_timestamp
        ms_checksum checksum
        uint32_t crc
        uint32_t crc_stored
        ms_fault fault
        int64_t fault_index
        int full_column


cdef class ArrowRecordsBuilder:
    cdef ms_columns _columns
    cdef int _busy
    cdef tuple _numbers
    cdef int _enter(self) except -1
    cdef int _run(self, ms_append_job* job) except -1
    cdef int64_t add(self, ms_append_job* job) except -1
    cdef int64_t bytes_so_far(self) noexcept
