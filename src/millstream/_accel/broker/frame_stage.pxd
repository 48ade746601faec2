"""Frames that were read, and what becomes of them; the base of `Selector`. See frame_stage.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.express cimport ExpressHandler, ExpressReader
from millstream._accel.broker.large_frames cimport LargeFrames
from millstream._accel.broker.poller cimport EVENTS_MAX
from millstream._accel.broker.socket_transport cimport SocketTransport

# Answers of a connection that wait for what was staged.
cdef struct Reply:
    PyObject* transport
    int64_t start
    int64_t end

# What was read into a connection's own buffer, of which its channel does not know yet.
cdef struct Rest:
    PyObject* transport
    int64_t count
    int64_t handled

cdef class FrameStage(LargeFrames):
    # How much of the shared buffer holds frames that are staged; requests that were answered.
    cdef int64_t shared_used
    cdef int64_t requests
    cdef int64_t _frame_bytes_max
    cdef uint8_t* _answers
    cdef int64_t _answers_used
    # Where records are read on their way to a socket; memory that is warm is cheaper than new one.
    cdef uint8_t* _records
    cdef ExpressHandler _staging
    cdef Reply _replies[EVENTS_MAX]
    cdef int _reply_count
    cdef Rest _rests[EVENTS_MAX]
    cdef int _rest_count
    cdef int64_t _rests_bytes

    cdef int64_t stage(
        self, SocketTransport transport, uint8_t* base, int64_t start, int64_t end,
        int64_t checked) except -1
    cdef int leave_rest(
        self, SocketTransport transport, int64_t count, int64_t handled) except -1
    cdef int settle(self) except -1

    cdef bint _begin(self, SocketTransport transport, ExpressHandler express) except -1
    cdef bint _read_records(
        self, SocketTransport transport, ExpressReader reader, const uint8_t* frame,
        int64_t size) except -1
    cdef bint _commit(self, int count) except -1
    cdef int _hand_over_rests(self) except -1
    cdef int _answer(self, Reply* reply) except -1
