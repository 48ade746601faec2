# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Whole frames that were read: offered to the fast path, appended together, answered.

`Selector` has one, and does the reading. Frames stay where they were read until `complete`, which
appends what was prepared, answers each connection with one `send`, and lets the channels know of
bytes that were read into their own buffers. Answers with records leave at once.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.connection_state cimport ConnectionState
from millstream._accel.broker.fast_path cimport (
    FAST_ANSWER_BYTES_MAX, FAST_DECLINED, FAST_DEFERRED, Deferred, FastHandler, FastReader)
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.transports cimport (
    MS_ANSWER_MEMORY, ms_answer, ms_answer_size, ms_send_answer)
from millstream._accel.wire cimport ms_read_big_endian

cdef enum:
    FRAME_SIZE_BYTES = 4
    FRAME_BYTES_MIN = 14
    # What connections with buffers of their own sent is completed when it is so much.
    UNREAD_BYTES_MAX = 1024 * 1024
    ANSWERS_BYTES_MAX = 64 * 1024


cdef class PreparedFrames:
    """Prepares, appends and answers the frames of a turn. One thread only."""

    def __cinit__(self):
        self._answers = self._records = NULL

    def __init__(self, loop, int64_t request_bytes_max, int turn_frames_max):
        self._loop = loop
        self._frame_bytes_max = request_bytes_max + FRAME_SIZE_BYTES
        self._turn_frames_max = turn_frames_max
        self._answers = <uint8_t*>PyMem_Malloc(ANSWERS_BYTES_MAX)
        self._records = <uint8_t*>PyMem_Malloc(MS_ANSWER_MEMORY)
        if self._answers == NULL or self._records == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self._answers)
        PyMem_Free(self._records)

    cdef report(self, SocketTransport transport, error):
        """What should not happen: tell it, and close the connection it happened on."""
        self._loop.call_exception_handler(
            {"message": "a connection failed while it was read", "exception": error})
        if transport is not None:
            transport.fail(error)

    cdef int64_t offer(
            self, SocketTransport transport, uint8_t* base, int64_t start, int64_t end) except -1:
        """Offer whole frames to the handler; where the first one is that it does not take.

        After so many of them it is the turn of others, and the channel puts off the rest.
        """
        cdef int64_t frame_end, taken
        cdef ConnectionState state = transport.state
        if self._handler is not transport.fast_path:
            self._begin(transport, transport.fast_path)
        while (end - start >= FRAME_BYTES_MIN and state.turn_frames < self._turn_frames_max
                and state.takes_fast_path()):
            frame_end = start + FRAME_SIZE_BYTES + ms_read_big_endian(base + start, 4)
            if frame_end > end or not (
                    FRAME_BYTES_MIN <= frame_end - start <= self._frame_bytes_max):
                break
            taken = self._prepare(transport, base + start, frame_end - start)
            if taken == FAST_DECLINED:
                break
            start = frame_end
        return start

    cdef int64_t _prepare(
            self, SocketTransport transport, uint8_t* frame, int64_t size) except -3:
        """Offer one frame; FAST_DECLINED if it takes the full path."""
        cdef FastHandler handler = transport.fast_path
        cdef int64_t answer
        if handler.declines_api(frame):
            return FAST_DECLINED
        if (self._answers_used > ANSWERS_BYTES_MAX - FAST_ANSWER_BYTES_MAX
                or self._reply_count == REPLIES_MAX):
            if not self._begin(transport, handler):
                return FAST_DECLINED
        answer = handler.prepare(frame, size, self._answers + self._answers_used)
        if answer == FAST_DEFERRED:
            self._count(transport)
            self._defer(transport, handler.take_deferred())
        elif answer != FAST_DECLINED:
            self._count(transport)
            self._reply(transport, answer)
        elif handler.reader is not None and transport.state.deferred == 0:
            # Its earlier answers leave first, and it reads what it has written.
            if self._replying is <PyObject*>transport and not self._begin(transport, handler):
                return FAST_DECLINED
            if self._read_records(transport, handler.reader, frame, size):
                return 0
        return answer

    cdef int _count(self, SocketTransport transport) noexcept:
        """A request was taken."""
        self.answered += 1
        transport.state.requests += 1
        transport.state.turn_frames += 1
        return 0

    cdef bint _begin(self, SocketTransport transport, FastHandler handler) except -1:
        """Complete; what is prepared from now on is this handler's. Whether the peer took all."""
        self.complete()
        handler.begin()
        self._handler = handler
        return transport.state.takes_fast_path()

    cdef Reply* _add_reply(self, SocketTransport transport) noexcept:
        cdef Reply* reply = &self._replies[self._reply_count]
        reply.transport = <PyObject*>transport
        reply.start = reply.end = self._answers_used
        reply.place = NULL
        self._reply_count += 1
        return reply

    cdef int _defer(self, SocketTransport transport, Deferred deferred) except -1:
        """The answer comes later, and those behind it wait for it.

        Its reply is empty; it makes the connection fail with the others if the append does.
        """
        self._add_reply(transport)
        self._replying = NULL
        transport.channel.defer(deferred)
        return 0

    cdef int _reply(self, SocketTransport transport, int64_t size) except -1:
        """The answer leaves after the append, with those of its connection that it follows."""
        cdef Reply* reply
        cdef Deferred place
        if self._replying is not <PyObject*>transport:
            reply = self._add_reply(transport)
            self._replying = <PyObject*>transport
            if transport.state.deferred > 0:
                place = Deferred()
                transport.channel.defer(place)
                Py_INCREF(place)
                reply.place = <PyObject*>place
        self._answers_used += size
        self._replies[self._reply_count - 1].end = self._answers_used
        return 0

    cdef bint _read_records(
            self, SocketTransport transport, FastReader reader, const uint8_t* frame,
            int64_t size) except -1:
        """Answer a frame with records at once, if the reader takes it."""
        cdef ms_answer answer
        cdef int64_t sent
        if not reader.read(frame, size, &answer):
            return False
        self._count(transport)
        # The descriptor stays open for as long as the file is referred to.
        _file = reader.file
        with nogil:
            sent = ms_send_answer(&transport.link, &answer, self._records)
        if sent < ms_answer_size(&answer):
            transport.channel.go_on(reader.parts(&answer), sent)
        else:
            transport.state.bytes_out += sent
        return True

    cdef int complete(self) except -1:
        """Append what was prepared, answer, tell the channels; afterwards all room is free."""
        cdef int i, count = self._reply_count
        self._reply_count = 0
        self._replying = NULL
        self.shared_used = self._answers_used = 0
        if count > 0:
            if self._append(count):
                for i in range(count):
                    self._answer(&self._replies[i])
            for i in range(count):
                if self._replies[i].place != NULL:
                    Py_DECREF(<object>self._replies[i].place)
        self._handler = None
        if self._unread_count > 0:
            self._hand_over_unread()
        return 0

    cdef bint _append(self, int count) except -1:
        """False if it is not known what was done: no answer is the only right one then."""
        cdef int i
        try:
            self._handler.append()
        except Exception as error:
            for i in range(count):
                self.report(<SocketTransport>self._replies[i].transport, error)
            return False
        return True

    cdef int _answer(self, Reply* reply) except -1:
        cdef SocketTransport transport = <SocketTransport>reply.transport
        cdef const char* answers = <const char*>self._answers + reply.start
        cdef int64_t sent, size = reply.end - reply.start
        if size == 0:
            return 0
        try:
            if reply.place != NULL:
                (<Deferred>reply.place).complete(PyBytes_FromStringAndSize(answers, size))
                return 0
            sent = max(transport.link.send(&transport.link, answers, size, False), 0)
            transport.state.bytes_out += sent
            if sent < size:
                # A slow peer, or none: the channel finds out which.
                transport.channel.go_on(
                    [PyBytes_FromStringAndSize(answers + sent, size - sent)], 0)
        except Exception as error:
            self.report(transport, error)
        return 0

    cdef int leave_unread(
            self, SocketTransport transport, int64_t count, int64_t handled) except -1:
        """So much was read into a connection's own buffer: its channel hears of it later.

        Until then the prepared frames stay where they are, and are written with those of others.
        """
        if self._unread_count == EVENTS_MAX:
            self.complete()
        self._unread[self._unread_count] = Unread(<PyObject*>transport, count, handled)
        self._unread_count += 1
        self._unread_bytes += count
        if self._unread_bytes >= UNREAD_BYTES_MAX:
            self.complete()
        return 0

    cdef int _hand_over_unread(self) except -1:
        """What is behind the prepared frames is the channels'."""
        cdef SocketTransport transport
        cdef int i, count = self._unread_count
        self._unread_count = 0
        self._unread_bytes = 0
        for i in range(count):
            transport = <SocketTransport>self._unread[i].transport
            try:
                transport.channel.buffer_updated(
                    self._unread[i].count, 0, self._unread[i].handled)
            except Exception as error:
                self.report(transport, error)
        return 0
