"""What the extension modules take from records_check.h. See there."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.wire cimport ms_fault

cdef extern from "codec/records_check.h" nogil:
    enum:
        MS_NAMED_MAX

    ctypedef struct ms_records_check:
        int64_t base_timestamp
        int64_t oldest
        int64_t newest
        int64_t largest_timestamp
        int64_t keyless_count
        int64_t untimely_count
        bint is_in_order
        int64_t keyless[MS_NAMED_MAX]
        int64_t untimely[MS_NAMED_MAX]
        int64_t untimely_at[MS_NAMED_MAX]
        int64_t faulty

    const uint8_t* ms_check_records(
        const uint8_t* body, const uint8_t* end, int64_t count, ms_records_check* check,
        ms_fault* fault)
