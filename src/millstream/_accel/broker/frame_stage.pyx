# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Whole frames that were read: offered to who answers at once, committed together, answered.

`Selector` extends it, and does the reading. Frames stay where they were read until `settle`, which
commits what was staged, answers each connection with one `send`, and lets the channels know of
bytes that were read into their own buffers; answers with records leave at once.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.channel_state cimport is_quiet, note_sent
from millstream._accel.broker.express cimport (
    EXPRESS_ANSWER_BYTES_MAX, EXPRESS_DECLINED, ExpressHandler, ExpressReader)
from millstream._accel.broker.large_frames cimport LargeFrames
from millstream._accel.broker.poller cimport Poller
from millstream._accel.broker.records_sender cimport (
    MS_ANSWER_MEMORY, ms_answer, ms_answer_size, ms_send_answer)
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.sockets cimport ms_send
from millstream._accel.wire cimport ms_read_big_endian

cdef enum:
    FRAME_SIZE_BYTES = 4
    FRAME_BYTES_MIN = 14
    # What connections with buffers of their own sent is settled when it is so much.
    RESTS_BYTES_MAX = 1024 * 1024
    ANSWERS_BYTES_MAX = 64 * 1024


cdef class FrameStage(LargeFrames):
    """Stages, commits and answers the frames of a turn."""

    def __cinit__(self):
        self._answers = self._records = NULL

    def __init__(self, loop, processor):
        self._frame_bytes_max = processor.config.socket_request_max_bytes + FRAME_SIZE_BYTES
        self._answers = <uint8_t*>PyMem_Malloc(ANSWERS_BYTES_MAX)
        self._records = <uint8_t*>PyMem_Malloc(MS_ANSWER_MEMORY)
        if self._answers == NULL or self._records == NULL:
            raise MemoryError()
        Poller.__init__(self, loop, processor)

    def __dealloc__(self):
        PyMem_Free(self._answers)
        PyMem_Free(self._records)

    cdef report(self, SocketTransport transport, error):
        """What should not happen: tell it, and close the connection it happened on."""
        self._loop.call_exception_handler(
            {"message": "a connection failed while it was read", "exception": error})
        if transport is not None:
            transport.fail(error)

    cdef int64_t stage(
            self, SocketTransport transport, uint8_t* base, int64_t start, int64_t end,
            int64_t checked) except -1:
        """Offer the whole frames to the handler; where the first one is that it does not take.

        `checked` is what was found out about the first one.
        """
        cdef ExpressHandler express = transport.express
        cdef int64_t answer, frame_end
        cdef bint is_replying = False
        if self._staging is not express:
            self._begin(transport, express)
        while end - start >= FRAME_BYTES_MIN:
            frame_end = start + FRAME_SIZE_BYTES + ms_read_big_endian(base + start, 4)
            if frame_end > end or not (
                    FRAME_BYTES_MIN <= frame_end - start <= self._frame_bytes_max):
                break
            if self._answers_used > ANSWERS_BYTES_MAX - EXPRESS_ANSWER_BYTES_MAX:
                is_replying = False
                if not self._begin(transport, express):
                    break
            if express.declines_api(base + start):
                break
            answer = express.stage(
                base + start, frame_end - start, checked, self._answers + self._answers_used)
            checked = 0
            if answer == EXPRESS_DECLINED:
                if express.reader is None:
                    break
                # Its earlier answers leave first, and it reads what it has written.
                if is_replying and not self._begin(transport, express):
                    break
                is_replying = False
                if not self._read_records(
                        transport, express.reader, base + start, frame_end - start):
                    break
                start = frame_end
                if is_quiet(transport.channel):
                    continue
                break
            if not is_replying:
                is_replying = True
                self._replies[self._reply_count].transport = <PyObject*>transport
                self._replies[self._reply_count].start = self._answers_used
                self._reply_count += 1
            self._answers_used += answer
            self._replies[self._reply_count - 1].end = self._answers_used
            self.requests += 1
            start = frame_end
        return start

    cdef bint _begin(self, SocketTransport transport, ExpressHandler express) except -1:
        """Settle; what is staged from now on is this handler's. Whether the peer took its share."""
        self.settle()
        express.begin()
        self._staging = express
        return is_quiet(transport.channel)

    cdef bint _read_records(
            self, SocketTransport transport, ExpressReader reader, const uint8_t* frame,
            int64_t size) except -1:
        """Answer a frame with records at once, if the reader takes it."""
        cdef ms_answer answer
        cdef int64_t sent
        if not reader.read(frame, size, &answer):
            return False
        self.requests += 1
        # The descriptor stays open for as long as somebody refers to the file.
        _file = reader.file
        with nogil:
            sent = ms_send_answer(transport.descriptor, &answer, self._records)
        if sent < ms_answer_size(&answer):
            transport.channel.go_on(reader.parts(&answer), sent)
        else:
            note_sent(transport.channel, sent)
        return True

    cdef int settle(self) except -1:
        """Commit what was staged, answer, tell the channels; afterwards all room is free."""
        cdef int i, count = self._reply_count
        self._reply_count = 0
        self.shared_used = self._answers_used = 0
        if count > 0 and self._commit(count):
            for i in range(count):
                self._answer(&self._replies[i])
        self._staging = None
        if self._rest_count > 0:
            self._hand_over_rests()
        return 0

    cdef bint _commit(self, int count) except -1:
        """False if nobody knows what was done: no answer is the only right one then."""
        cdef int i
        try:
            self._staging.commit()
        except Exception as error:
            for i in range(count):
                self.report(<SocketTransport>self._replies[i].transport, error)
            return False
        return True

    cdef int leave_rest(
            self, SocketTransport transport, int64_t count, int64_t handled) except -1:
        """So much was read into a connection's own buffer: its channel hears of it later.

        Until then the staged frames stay where they are, and are written with those of others.
        """
        if self._rest_count == EVENTS_MAX:
            self.settle()
        self._rests[self._rest_count] = Rest(<PyObject*>transport, count, handled)
        self._rest_count += 1
        self._rests_bytes += count
        if self._rests_bytes >= RESTS_BYTES_MAX:
            self.settle()
        return 0

    cdef int _hand_over_rests(self) except -1:
        """What is behind the staged frames is the channels'."""
        cdef SocketTransport transport
        cdef int i, count = self._rest_count
        self._rest_count = 0
        self._rests_bytes = 0
        for i in range(count):
            transport = <SocketTransport>self._rests[i].transport
            try:
                transport.channel.buffer_updated(self._rests[i].count, 0, self._rests[i].handled)
            except Exception as error:
                self.report(transport, error)
        return 0

    cdef int _answer(self, Reply* reply) except -1:
        cdef SocketTransport transport = <SocketTransport>reply.transport
        cdef int64_t size = reply.end - reply.start, sent = 0
        if size > 0:
            sent = ms_send(transport.descriptor, self._answers + reply.start, size)
        note_sent(transport.channel, sent)
        if sent < size:
            # A slow peer, or none: the channel finds out which.
            transport.channel.go_on([PyBytes_FromStringAndSize(
                <const char*>self._answers + reply.start + sent, size - sent)], 0)
        return 0
