"""The transport for `selector`, which makes it; see socket_transport.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.connection_state cimport ConnectionState
from millstream._accel.broker.fast_path cimport FastHandler
from millstream._accel.broker.receiving_thread cimport ReceivingThread, ms_handoff
from millstream._accel.broker.transports cimport ms_transport

cdef class SocketTransport:
    cdef object channel
    cdef ConnectionState state
    cdef object connected
    cdef object error
    cdef object loop
    # It made this, and has a set of those that are open.
    cdef object selector
    cdef set open_ones
    cdef FastHandler fast_path
    cdef ms_transport link
    cdef int epoll
    cdef bint is_read
    cdef bint is_watched
    cdef bint is_closed
    cdef bint is_wide
    # For `large_frames`: when it was last the turn of this connection.
    cdef int64_t turn
    # What receives instead of the selector, and how much had been received before.
    cdef ReceivingThread receiver
    cdef ms_handoff handoff
    cdef int64_t end_before

    cdef bint has_buffered(self) noexcept
    cdef int watch(self) except -1
    cdef int unwatch(self) except -1
    cdef int widen(self) except -1
    cdef bint hand_off(self, ReceivingThread receiver) except -1
    cdef int64_t end_handoff(self) except -1
    cdef fail(self, error)
