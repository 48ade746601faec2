"""The thread for large frames, for `selector` and its transports; see bulk_receiver.pyx."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "broker/bulk_loan.h" nogil:
    ctypedef int64_t (*ms_frame_check)(const uint8_t* frame, int64_t size) noexcept nogil
    ctypedef struct ms_bulk:
        pass
    ctypedef struct ms_loan:
        int descriptor
        uint8_t* base
        int64_t start
        int64_t end
        int64_t size
        ms_frame_check check
        void* tag
        int64_t result
        int64_t checked

cdef class BulkReceiver:
    cdef ms_bulk* _bulk
    # A descriptor that becomes readable, once, when there is something to collect.
    cdef int news

    cdef bint lend(self, ms_loan* loan, lender) except -1
    cdef int recall(self, ms_loan* loan) except -1
    cdef object collect(self)
    cdef int remind(self) except -1
    cdef int count(self) noexcept
