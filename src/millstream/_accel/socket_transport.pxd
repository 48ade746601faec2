"""The transport for `selector`, which makes it; see socket_transport.pyx."""

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

    cdef int watch(self) except -1
    cdef fail(self, error)
