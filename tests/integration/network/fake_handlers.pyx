# cython: language_level=3
"""A fast handler for tests: it echoes, defers, declines or fails, as the body of a frame says."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from millstream._accel.broker.fast_path cimport (
    FAST_DECLINED, FAST_DEFERRED, Deferred, FastHandler)

cdef enum:
    CORRELATION_ID_AT = 8
    CORRELATION_ID_SIZE = 4
    # The header of the harness: up to a client id of four letters.
    BODY_AT = 18


cdef class FakeHandler(FastHandler):
    """Echoes bodies of letters; `later` has what it owes, by the first letter of the body."""

    cdef public dict later
    cdef public list prepared
    cdef bint _fails

    def __init__(self):
        self.later = {}
        self.prepared = []

    cdef int64_t prepare(self, uint8_t* frame, int64_t size, uint8_t* answer) except -3:
        cdef bytes body = PyBytes_FromStringAndSize(<const char*>frame + BODY_AT, size - BODY_AT)
        cdef Deferred deferred
        if body.startswith(b"decline"):
            return FAST_DECLINED
        self._fails = body.startswith(b"fail")
        echo = self._echo(frame, body)
        if body.startswith(b"defer"):
            deferred = Deferred()
            self.later[body] = (deferred, echo)
            self.deferred = deferred
            return FAST_DEFERRED
        if body.startswith(b"early"):
            deferred = Deferred()
            deferred.complete(echo)
            self.deferred = deferred
            return FAST_DEFERRED
        self.prepared.append(body)
        memcpy(answer, <const char*>echo, len(echo))
        return len(echo)

    cdef int append(self) except -1:
        if self._fails:
            self._fails = False
            raise ValueError("nobody knows what was appended")
        for body, (deferred, echo) in list(self.later.items()):
            if body.startswith(b"defer until append"):
                self.complete(body)
        return 0

    cdef bytes _echo(self, const uint8_t* frame, bytes body):
        size = CORRELATION_ID_SIZE + len(body)
        return size.to_bytes(4, "big") + PyBytes_FromStringAndSize(
            <const char*>frame + CORRELATION_ID_AT, CORRELATION_ID_SIZE) + body

    def complete(self, body):
        """Give an answer that is owed."""
        deferred, echo = self.later.pop(body)
        (<Deferred>deferred).complete(echo)
