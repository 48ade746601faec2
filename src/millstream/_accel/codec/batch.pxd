"""What `batch_writer` takes from batch.h. See there."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from millstream._accel.arrow.input cimport ms_input

cdef extern from "codec/batch.h" nogil:
    enum:
        MS_BODY_SIZE_MAX
        MS_BATCH_FULL
        MS_BATCH_TOO_LARGE
        MS_BATCH_TOO_MANY
        MS_BATCH_TOO_FAR
        MS_BATCH_NO_MEMORY
        MS_BATCH_NO_ROW

    ctypedef struct ms_batch:
        uint8_t* data
        int64_t length
        int64_t capacity
        int64_t hint
        int64_t record_count
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t last_offset_delta
        int64_t fixed_base
        bint has_fixed_base

    ctypedef struct ms_rows_job:
        int64_t row
        int64_t stop
        int64_t size_limit
        int64_t default_timestamp
        int64_t timestamp
        int64_t length

    void ms_batch_reset(ms_batch* batch)
    bint ms_batch_reserve(ms_batch* batch, int64_t length)
    void ms_batch_count(ms_batch* batch, int64_t timestamp, int64_t offset_delta)
    bint ms_batch_is_too_far(const ms_batch* batch, int64_t timestamp, int64_t* delta)
    int ms_batch_add_rows(
        ms_batch* batch, const ms_input* input, ms_rows_job* job, const int32_t* picked)
