"""Connections that send large frames, for `selector`; see large_frames.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from millstream._accel.broker.receiving_thread cimport ReceivingThread
from millstream._accel.broker.socket_transport cimport SocketTransport

cdef class LargeFrames:
    cdef object _requests
    cdef int _epoll
    # How much one read can bring into the shared buffer; larger frames are large.
    cdef int64_t _read_bytes_max
    # When this turn of the loop began, and how many bytes of it are left.
    cdef int64_t _now_ms
    cdef int64_t _left
    # The connection that is read now, how many more bytes of it, how many had their turn so far,
    # and when it was last read.
    cdef PyObject* _current
    cdef int64_t _current_left
    cdef int64_t _turns
    cdef int64_t _read_ms
    # What receives beside the loop, once there was a need; whether there can be no such thread.
    cdef ReceivingThread _receiver
    cdef bint _is_alone
    # How often a connection was handed off.
    cdef int64_t handed_off

    cdef int close(self) except -1
    cdef bint sends_large(self, SocketTransport transport) noexcept
    cdef int begin_turn(self, PyObject** waiting, int count, int64_t now_ms) except -1
    cdef SocketTransport next_to_read(self, PyObject** waiting, int* count)
    cdef int note_read(self, int64_t count) noexcept
    cdef int begin_collecting(self) noexcept
    cdef SocketTransport next_received(self)
    cdef int watch_again(self, SocketTransport transport, bint is_likely) except -1

    cdef bint _is_before(self, SocketTransport transport, SocketTransport other) noexcept
    cdef bint _is_current(self, SocketTransport transport) noexcept
    cdef int _give_turn(self, SocketTransport transport) noexcept
    cdef bint _is_kept(self, SocketTransport transport) noexcept
    cdef int _hand_off_all(self, PyObject** waiting, int count) except -1
    cdef int _handed_off_count(self) noexcept
    cdef int _start_receiver(self) except -1
    cdef bint _hand_off(self, SocketTransport transport) except -1
