"""Frames of a turn that the fast path has taken, for `selector`; see prepared_frames.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.fast_path cimport Deferred, FastHandler, FastReader
from millstream._accel.broker.socket_transport cimport SocketTransport

cdef enum:
    # So many connections are served in one turn at most.
    EVENTS_MAX = 64
    # A connection has several replies in a turn where deferred answers are between them.
    REPLIES_MAX = 256

# Answers of a connection that leave when the appends are done.
cdef struct Reply:
    PyObject* transport
    int64_t start
    int64_t end
    # The `Deferred` that keeps their place behind answers that are deferred; owned, or NULL.
    PyObject* place

# What was read into a connection's own buffer, of which its channel does not know yet.
cdef struct Unread:
    PyObject* transport
    int64_t count
    int64_t handled

cdef class PreparedFrames:
    cdef object _loop
    cdef int64_t _frame_bytes_max
    # So many frames of a connection are handled before it is the turn of others.
    cdef int _turn_frames_max
    cdef uint8_t* _answers
    cdef int64_t _answers_used
    # Where records are read on their way to a socket; memory that is warm is cheaper than new one.
    cdef uint8_t* _records
    cdef FastHandler _handler
    cdef Reply _replies[REPLIES_MAX]
    cdef int _reply_count
    # The connection whose answers the last reply may still get.
    cdef PyObject* _replying
    cdef Unread _unread[EVENTS_MAX]
    cdef int _unread_count
    cdef int64_t _unread_bytes
    # How many bytes of the shared buffer hold frames that were prepared.
    cdef int64_t shared_used
    # How many requests were answered without the full path so far.
    cdef int64_t answered

    cdef int64_t offer(
        self, SocketTransport transport, uint8_t* base, int64_t start, int64_t end) except -1
    cdef int leave_unread(
        self, SocketTransport transport, int64_t count, int64_t handled) except -1
    cdef int complete(self) except -1
    cdef report(self, SocketTransport transport, error)

    cdef int64_t _prepare(
        self, SocketTransport transport, uint8_t* frame, int64_t size) except -3
    cdef int _count(self, SocketTransport transport) noexcept
    cdef bint _begin(self, SocketTransport transport, FastHandler handler) except -1
    cdef Reply* _add_reply(self, SocketTransport transport) noexcept
    cdef int _defer(self, SocketTransport transport, Deferred deferred) except -1
    cdef int _reply(self, SocketTransport transport, int64_t size) except -1
    cdef bint _read_records(
        self, SocketTransport transport, FastReader reader, const uint8_t* frame,
        int64_t size) except -1
    cdef bint _append(self, int count) except -1
    cdef int _hand_over_unread(self) except -1
    cdef int _answer(self, Reply* reply) except -1
