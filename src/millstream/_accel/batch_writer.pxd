"""The C side of BatchWriter."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.arrow_input cimport ms_input

cdef class BatchWriter:
    cdef uint8_t* _data
    cdef int64_t _length
    cdef int64_t _capacity
    cdef int64_t _hint
    cdef int64_t _record_count
    cdef int64_t _base_timestamp
    cdef int64_t _fixed_base
    cdef bint _has_fixed_base
    cdef int64_t _max_timestamp
    cdef int64_t _last_offset_delta
    cdef int _exports
    cdef int _busy

    cdef void _reset(self) noexcept
    cdef int _enter(self) except -1
    cdef int _enter_to_change(self) except -1
    cdef void _leave(self) noexcept
    cdef int _grow(self, int64_t needed) noexcept nogil
    cdef inline int _reserve(self, int64_t size) except -1
    cdef inline void _count(self, int64_t timestamp, int64_t offset_delta) noexcept nogil
    cdef inline bint _is_too_far(self, int64_t timestamp, int64_t* delta) noexcept nogil
    cdef inline int64_t _timestamp_delta(self, int64_t timestamp) except? -1
    cdef inline int64_t _next_offset_delta(self) except -1
    cdef int64_t _offset_delta(self, given) except -1
    cdef int _write(
        self, int64_t timestamp, int64_t timestamp_delta, object offset_delta,
        const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
        list headers, int64_t headers_size,
    ) except -1
    cdef int _write_views(
        self, int64_t timestamp, int64_t timestamp_delta, object offset_delta, key, value,
        list headers, int64_t headers_size,
    ) except -1
    cdef int _append(self, timestamp, key, value, headers, offset_delta) except -1
    cdef int _append_row(self, row) except -1
    cdef int _write_row(
        self, const ms_input* input, int64_t index, int64_t size_limit, int64_t* timestamp,
        int64_t* length,
    ) noexcept nogil
    cdef int _write_rows(
        self, const ms_input* input, int64_t* index, int64_t stop, int64_t size_limit,
        int64_t default_timestamp, int64_t* timestamp, int64_t* length,
    ) noexcept nogil
    cdef int _raise_row(self, int outcome, int64_t row, int64_t stamp, int64_t length) except -1
