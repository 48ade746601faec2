"""Where the records of a read are, for the other extension modules; see log_span.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.log_tail cimport LogTail

# What a log has for a reader.
cdef struct Span:
    int64_t position
    int64_t length
    int descriptor
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset

cdef int64_t read_bounds(LogTail tail, bint is_committed, Span* span) except -2
cdef object find_span(
    LogTail tail, int64_t offset, int64_t bytes_max, bint is_committed, Span* span)
