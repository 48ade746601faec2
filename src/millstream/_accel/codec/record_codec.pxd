"""What other readers of records take from `record_codec`."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.wire cimport ms_fault, ms_record

cdef tuple read_headers(ms_record* record)
cdef int raise_fault(ms_fault* fault, int64_t index, const uint8_t* body) except -1
cdef int check_count(int64_t count) except -1
cdef int check_end(
    const uint8_t* p, const uint8_t* body, Py_ssize_t size, int64_t count) except -1
