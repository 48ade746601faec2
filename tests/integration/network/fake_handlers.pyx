# cython: language_level=3
"""A fast handler and a transport for tests.

The handler echoes, defers, declines or fails, as the body of a frame says. The transport takes all
that a socket has and gives it out in small pieces, as TLS does with its records.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from millstream._accel.broker.fast_path cimport (
    FAST_DECLINED, FAST_DEFERRED, Deferred, FastHandler)
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.transports cimport ms_transport

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int descriptor, void* buffer, size_t size, int flags)
    int MSG_DONTWAIT

cdef enum:
    CORRELATION_ID_AT = 8
    CORRELATION_ID_SIZE = 4
    # The header of the harness: up to a client id of four letters.
    BODY_AT = 18
    BUFFER_BYTES = 65536
    PIECE_BYTES = 7
    EAGAIN = 11


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


cdef struct Buffered:
    uint8_t bytes[BUFFER_BYTES]
    int64_t start
    int64_t end


cdef int64_t receive_piece(ms_transport* transport, void* buffer, size_t size) noexcept nogil:
    cdef Buffered* buffered = <Buffered*>transport.session
    cdef int64_t count
    if buffered.start == buffered.end:
        count = recv(transport.descriptor, buffered.bytes, BUFFER_BYTES, MSG_DONTWAIT)
        if count <= 0:
            return -EAGAIN if count < 0 else 0
        buffered.start = 0
        buffered.end = count
    count = min(<int64_t>size, min(<int64_t>PIECE_BYTES, buffered.end - buffered.start))
    memcpy(buffer, buffered.bytes + buffered.start, count)
    buffered.start += count
    return count


cdef int has_pieces(const ms_transport* transport) noexcept nogil:
    cdef const Buffered* buffered = <const Buffered*>transport.session
    return buffered.start < buffered.end


def buffer_up(SocketTransport transport):
    """Let a connection's transport take more than it gives."""
    cdef Buffered* buffered = <Buffered*>malloc(sizeof(Buffered))
    if buffered == NULL:
        raise MemoryError()
    buffered.start = buffered.end = 0
    transport.link.session = buffered
    transport.link.receive = receive_piece
    transport.link.has_buffered = has_pieces


def let_go(SocketTransport transport):
    """Free what the transport has; it is closed."""
    free(transport.link.session)
