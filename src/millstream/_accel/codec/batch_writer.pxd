"""The writer's own fields, for the accumulator, which appends to it directly."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from millstream._accel.arrow.reader cimport ArrowChunk
from millstream._accel.codec.batch cimport ms_batch, ms_rows_job


cdef class BatchWriter:
    cdef ms_batch _batch
    cdef int _exports
    cdef int _busy

    cdef int _enter(self) except -1
    cdef int _enter_to_change(self) except -1
    cdef void _leave(self) noexcept
    cdef int _reserve(self, int64_t size) except -1
    cdef int64_t _timestamp_delta(self, int64_t timestamp) except? -1
    cdef int64_t _next_offset_delta(self) except -1
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
    cdef int _raise_row(self, int outcome, ms_rows_job* job, int64_t row) except -1
    cdef object _extend_arrow(self, ArrowChunk chunk, ms_rows_job* job, const int32_t* picked)
