"""What `log_state` and `log_tail` take from files.h. See there."""

from libc.stdint cimport int64_t

cdef extern from "broker/files.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    int ms_write_parts(int descriptor, iovec* parts, int count, int64_t position)
