"""The transport for `selector`, which makes it; see socket_transport.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.bulk_receiver cimport BulkReceiver, ms_loan
from millstream._accel.broker.express cimport ExpressHandler

cdef class SocketTransport:
    cdef object channel
    cdef object connected
    cdef object error
    cdef object loop
    cdef set open_ones
    cdef ExpressHandler express
    cdef int epoll
    cdef int descriptor
    cdef bint is_read
    cdef bint is_watched
    cdef bint is_closed
    cdef bint is_wide
    # For the selector: when it was last the turn of this connection with large frames.
    cdef int64_t turn
    # Who receives instead of the selector, and how much had been received before.
    cdef BulkReceiver borrower
    cdef ms_loan loan
    cdef int64_t lent_end

    cdef int watch(self) except -1
    cdef int unwatch(self) except -1
    cdef int widen(self) except -1
    cdef bint lend(self, BulkReceiver borrower) except -1
    cdef int64_t take_back(self) except -1
    cdef fail(self, error)
