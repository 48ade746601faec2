"""What the extension modules take from arrow/input.h. See there."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.arrow.abi cimport ArrowArray

cdef extern from "arrow/input.h" nogil:
    enum:
        MS_ABSENT
        MS_NULL
        MS_ROW_DONE
        MS_ROW_NULL_HEADER
        MS_ROW_NULL_HEADER_KEY
        MS_ROW_TIMESTAMP_OVERFLOW
        MS_BOUND
        MS_BAD_SHAPE
        MS_BAD_KEY

    ctypedef struct ms_place:
        int64_t child
        int layout
        int64_t width

    ctypedef struct ms_plan:
        ms_place key
        ms_place value
        ms_place timestamp
        ms_place partition
        ms_place headers
        ms_place header_key
        ms_place header_value
        int64_t timestamp_multiplier
        int64_t timestamp_divisor

    ctypedef struct ms_source:
        int layout

    ctypedef struct ms_input:
        int64_t row_count
        ms_source key
        ms_source timestamp
        ms_source partition
        ms_source headers
        ms_source header_key
        ms_source header_value

    ctypedef struct ms_row:
        const uint8_t* key
        const uint8_t* value
        int64_t key_length
        int64_t value_length
        int64_t timestamp
        int64_t first_header
        int64_t header_count
        int64_t headers_size
        bint has_timestamp

    int ms_bind_input(
        ms_input* input, const ms_plan* plan, const ArrowArray* array, int64_t* bad)
    bint ms_is_null(const uint8_t* validity, int64_t at)
    int64_t ms_string_at(const ms_source* source, int64_t row, const uint8_t** data)
    int64_t ms_partition_at(const ms_input* input, int64_t row, int* is_null)
    int ms_read_row(const ms_input* input, int64_t row, ms_row* out)
    uint8_t* ms_write_row_headers(uint8_t* p, const ms_input* input, const ms_row* row)
