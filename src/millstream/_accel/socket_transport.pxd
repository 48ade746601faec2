"""The transport for `selector`, which makes it; see socket_transport.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.express cimport ExpressHandler

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
    cdef bint is_closed
    # For the selector: when it was last the turn of this connection with large frames.
    cdef int64_t turn

    cdef int watch(self) except -1
    cdef fail(self, error)
