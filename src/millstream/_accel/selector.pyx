# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Plain sockets beneath the event loop: read, offered to who answers at once, answered.

`millstream.network.selection` gives it the plain connections of a processor where this was built
and the system has epoll; others stay with the loop's own transports. A `Selector` reads all sockets
that are ready in a turn, offers whole frames to the listener's `ExpressHandler`, commits what was
staged, and answers each connection with one `send`; answers with records leave at once. What is
not that simple is the `KafkaChannel`'s, which sees it as if a transport had read it. While several
connections send large frames a `BulkReceiver` receives them; they are handled here all the same.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.channel_state cimport (
    is_quiet, note_active, note_sent, slot, slots)
from millstream._accel.express cimport (
    EXPRESS_ANSWER_BYTES_MAX, EXPRESS_DECLINED, ExpressHandler, ExpressReader)
from millstream._accel.large_frames cimport LargeFrames
from millstream._accel.poller cimport EVENTS_MAX, Poller
from millstream._accel.records_sender cimport (
    MS_ANSWER_MEMORY, ms_answer, ms_answer_size, ms_send_answer)
from millstream._accel.socket_transport cimport SocketTransport
from millstream._accel.sockets cimport (
    ms_event, ms_event_tag, ms_has_epoll, ms_receive, ms_send)
from millstream._accel.wire cimport ms_read_big_endian

import os

IS_SUPPORTED = bool(ms_has_epoll)

cdef enum:
    FRAME_SIZE_BYTES = 4
    FRAME_BYTES_MIN = 14
    # A read gets at least so much room, or what was staged is settled first.
    ROOM_BYTES_MIN = 128 * 1024
    ANSWERS_BYTES_MAX = 64 * 1024

cdef struct Reply:
    PyObject* transport
    int64_t start
    int64_t end


cdef class Selector(LargeFrames):
    """Reads the plain connections of one loop, and answers what is simple. One thread only."""

    cdef object _now
    cdef set _transports
    cdef object _shared_buffer
    cdef uint8_t* _shared
    cdef int64_t _shared_bytes
    cdef int64_t _shared_used
    cdef int64_t _frame_bytes_max
    cdef uint8_t* _answers
    cdef int64_t _answers_used
    # Where records are read on their way to a socket; memory that is warm is cheaper than new one.
    cdef uint8_t* _records
    cdef ExpressHandler _staging
    cdef Reply _replies[EVENTS_MAX]
    cdef int _reply_count
    cdef int64_t _bytes_in
    cdef int64_t _requests

    def __cinit__(self):
        self._answers = self._records = NULL

    def __init__(self, loop, processor):
        self._transports = set()
        self._frame_bytes_max = processor.config.socket_request_max_bytes + FRAME_SIZE_BYTES
        self._answers = <uint8_t*>PyMem_Malloc(ANSWERS_BYTES_MAX)
        self._records = <uint8_t*>PyMem_Malloc(MS_ANSWER_MEMORY)
        if self._answers == NULL or self._records == NULL:
            raise MemoryError()
        self.use_buffer(processor.shared_buffer)
        self.read_bytes_max = len(processor.shared_space)
        Poller.__init__(self, loop, processor)

    def __dealloc__(self):
        PyMem_Free(self._answers)
        PyMem_Free(self._records)

    def use_buffer(self, buffer):
        """Where reads go from now on: the processor has another shared buffer."""
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        self._shared = <uint8_t*>view.buf
        self._shared_bytes = view.len
        PyBuffer_Release(&view)
        # The memory stays where it is for as long as the memoryview is referred to.
        self._shared_buffer = buffer

    def open(self, channel, connected, ExpressHandler express):
        """Take a connected socket for a channel, and read it from now on."""
        cdef SocketTransport transport = SocketTransport.__new__(SocketTransport)
        transport.channel = channel
        transport.connected = connected
        transport.loop = self._loop
        transport.open_ones = self._transports
        transport.express = express
        transport.epoll = self._epoll
        transport.descriptor = connected.fileno()
        transport.watch()
        transport.is_read = True
        self._transports.add(transport)
        channel.connection_made(transport)

    cdef int64_t turn(self, ms_event* events, int count) except -1:
        """Read everybody who is ready, then settle what was staged."""
        cdef PyObject* bulk[EVENTS_MAX]
        cdef SocketTransport transport
        cdef int i, bulk_count = 0
        cdef bint has_news = False
        cdef int64_t answered
        self._now = self._processor.now_ms()
        self.now_ms = self._now
        for i in range(count):
            if ms_event_tag(&events[i]) == NULL:
                has_news = True
                continue
            transport = <SocketTransport>ms_event_tag(&events[i])
            # Somebody before it in this turn may have muted or closed it.
            if transport.is_read:
                if self.is_bulk(transport):
                    bulk[bulk_count] = <PyObject*>transport
                    bulk_count += 1
                else:
                    self.try_to_read(transport)
        self.read_large(bulk, bulk_count)
        if has_news:
            self.collect()
        try:
            self._settle()
        except Exception as error:
            self.report(None, error)
        answered = self._hand_over_counts()
        # It does not pay to look for the next request while somebody else receives it.
        return 0 if has_news else answered

    cdef try_to_read(self, SocketTransport transport):
        try:
            self._read(transport)
        except Exception as error:
            self.report(transport, error)

    cdef report(self, SocketTransport transport, error):
        """What should not happen: tell it, and close the connection it happened on."""
        self._loop.call_exception_handler(
            {"message": "a connection failed while it was read", "exception": error})
        if transport is not None:
            transport.fail(error)

    cdef int64_t _hand_over_counts(self) except -1:
        cdef int64_t requests = self._requests
        if requests:
            self._processor.requests_received += requests
            self._processor.bytes_in += self._bytes_in
            self._requests = self._bytes_in = 0
        return requests

    # Reading.

    cdef int handle_received(self, SocketTransport transport, int64_t count) except -1:
        """As if it had been read here."""
        cdef int64_t start = transport.loan.start, handled = start
        cdef int64_t result = transport.loan.result
        self._settle()
        if count > 0 and is_quiet(transport.channel):
            handled = self._stage(
                transport, transport.loan.base, start, transport.loan.end, transport.loan.checked)
            self._settle()
        if count > 0:
            transport.channel.buffer_updated(count, 0, handled - start)
        if result <= 0:
            self._ended(transport, result)
        return 0

    cdef int _read(self, SocketTransport transport) except -1:
        cdef object channel = transport.channel
        cdef object receiver = slot(channel, slots.receiver)
        cdef bint has_own = slot(receiver, slots.own) is not None
        cdef bint is_plain = not has_own and len(<bytes>slot(receiver, slots.carried)) == 0
        if transport.express is None or not is_quiet(channel):
            self._settle()
            return self._read_for_channel(transport, is_plain)
        if is_plain:
            return self._read_shared(transport)
        self._settle()
        return self._read_rest(transport, receiver, has_own)

    cdef int64_t _receive(self, SocketTransport transport, uint8_t* room, int64_t size) noexcept:
        self.received = ms_receive(transport.descriptor, room, size)
        return self.received

    cdef int _read_for_channel(self, SocketTransport transport, bint is_plain) except -1:
        """All is left to the channel."""
        cdef Py_buffer view
        cdef int64_t count
        if is_plain:
            count = self._receive(transport, self._shared, self.read_bytes_max)
        else:
            PyObject_GetBuffer(transport.channel.get_buffer(-1), &view, PyBUF_WRITABLE)
            count = self._receive(transport, <uint8_t*>view.buf, view.len)
            PyBuffer_Release(&view)
        if count > 0:
            transport.channel.buffer_updated(count)
        else:
            self._ended(transport, count)
        return 0

    cdef int _read_shared(self, SocketTransport transport) except -1:
        """The common case: the connection begins with a frame, behind those of others."""
        if self._shared_bytes - self._shared_used < ROOM_BYTES_MIN:
            self._settle()
        cdef int64_t start = self._shared_used
        cdef int64_t count = self._receive(
            transport, self._shared + start, min(self._shared_bytes - start, self.read_bytes_max))
        if count <= 0:
            return self._ended(transport, count)
        cdef int64_t handled = self._stage(transport, self._shared, start, start + count, 0)
        if handled == start + count:
            self._bytes_in += count
            self._shared_used = handled
            note_active(transport.channel, self._now)
        else:
            self._settle()
            transport.channel.buffer_updated(count, start, handled - start)
        return 0

    cdef int _read_rest(self, SocketTransport transport, receiver, bint has_own) except -1:
        """Behind bytes that an earlier read brought."""
        cdef Py_buffer view
        cdef uint8_t* base
        cdef int64_t start = 0, end, count, handled
        end = <int64_t>slot(receiver, slots.end) if has_own else len(
            <bytes>slot(receiver, slots.carried))
        PyObject_GetBuffer(receiver.space(), &view, PyBUF_WRITABLE)
        try:
            count = self._receive(transport, <uint8_t*>view.buf, view.len)
            if count <= 0:
                return self._ended(transport, count)
            base = <uint8_t*>view.buf - end
            if has_own:
                start = <int64_t>slot(receiver, slots.start)
            handled = self._stage(transport, base, start, end + count, 0)
            self._settle()
        finally:
            PyBuffer_Release(&view)
        transport.channel.buffer_updated(count, 0, handled - start)
        return 0

    cdef int _ended(self, SocketTransport transport, int64_t count) except -1:
        """Nothing was read."""
        if count == 0:
            self._settle()
            transport.channel.eof_received()
            transport.fail(None)
        elif count not in (-EAGAIN, -EINTR):
            transport.fail(OSError(-count, os.strerror(-count)))
        return 0

    # Answering.

    cdef int64_t _stage(
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
            self._requests += 1
            start = frame_end
        return start

    cdef bint _begin(self, SocketTransport transport, ExpressHandler express) except -1:
        """Settle; what is staged from now on is this handler's. Whether the peer took its share."""
        self._settle()
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
        self._requests += 1
        # The descriptor stays open for as long as somebody refers to the file.
        _file = reader.file
        with nogil:
            sent = ms_send_answer(transport.descriptor, &answer, self._records)
        if sent < ms_answer_size(&answer):
            transport.channel.go_on(reader.parts(&answer), sent)
        else:
            note_sent(transport.channel, sent)
        return True

    cdef int _settle(self) except -1:
        """Commit what was staged, then answer; afterwards all room is free."""
        cdef int i, count = self._reply_count
        cdef ExpressHandler staging = self._staging
        self._reply_count = 0
        self._staging = None
        self._shared_used = self._answers_used = 0
        if count == 0:
            return 0
        try:
            staging.commit()
        except Exception as error:
            # Nobody knows what was done: no answer is the only right one.
            for i in range(count):
                self.report(<SocketTransport>self._replies[i].transport, error)
            return 0
        for i in range(count):
            self._answer(&self._replies[i])
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
