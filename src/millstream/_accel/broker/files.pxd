"""What `express_lane` takes from files.h. See there."""

cdef extern from "broker/files.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
