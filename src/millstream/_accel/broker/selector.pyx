# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Sockets beneath the event loop: read, offered to the fast path, answered.

`millstream.network.server.selection` gives it the plain connections of a processor where this was
built; others stay with the loop's own transports. A `Selector` has an
epoll of its own that the loop watches. It reads all sockets that are ready in a turn, offers whole
frames to the listener's `FastHandler`, and completes what was prepared. What is not that simple is
the `KafkaChannel`'s, which sees it as if a transport had read it. After a single request whose
client sends the next one at once, it spins for that before the loop may sleep; busy_poll.c says
when.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.busy_poll cimport (
    ms_busy_poll, ms_busy_poll_answered, ms_busy_poll_init, ms_busy_poll_spin, ms_busy_poll_woken)
from millstream._accel.broker.connection_state cimport ConnectionState
from millstream._accel.broker.epoll cimport (
    ms_epoll_create, ms_epoll_ready, ms_event, ms_event_tag)
from millstream._accel.broker.fast_path cimport FastHandler
from millstream._accel.broker.large_frames cimport LargeFrames
from millstream._accel.broker.prepared_frames cimport EVENTS_MAX, PreparedFrames
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.transports cimport ms_transport_open

import os

cdef enum:
    # A read gets at least so much room, or what was prepared is completed first.
    ROOM_BYTES_MIN = 128 * 1024
    # So often it spins for the next request before everything else on the loop has a turn.
    SPINS_MAX = 8


cdef class Selector:
    """Reads the plain connections of one loop, and answers what is simple. One thread only."""

    cdef object _loop
    cdef object _processor
    cdef int _epoll
    cdef ms_busy_poll _busy_poll
    cdef bint _is_spin_due
    cdef PreparedFrames _prepared
    cdef LargeFrames _large
    cdef set _transports
    cdef int64_t _now_ms
    # Where the frames of all connections are read, and how much one read may bring.
    cdef object _shared_buffer
    cdef uint8_t* _shared
    cdef int64_t _shared_bytes
    cdef int64_t _read_bytes_max
    # What the last read has brought.
    cdef int64_t _received

    def __cinit__(self):
        self._epoll = -1
        ms_busy_poll_init(&self._busy_poll)

    def __init__(self, loop, processor):
        self._loop = loop
        self._processor = processor
        self._transports = set()
        self.use_buffer(processor.shared_buffer)
        self._read_bytes_max = len(processor.shared_space)
        self._epoll = ms_epoll_create()
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self._prepared = PreparedFrames(
            loop, processor.config.socket_request_max_bytes, processor.turn_frames_max)
        self._large = LargeFrames(self._epoll, self._read_bytes_max, processor.requests)
        loop.add_reader(self._epoll, self._on_ready)

    @property
    def answered(self):
        """How many requests were answered without the full path so far."""
        return self._prepared.answered

    @property
    def handed_off(self):
        """How often a connection was handed off to the thread that receives large frames."""
        return self._large.handed_off

    def close(self):
        """Read nothing any more. The connections are closed by then."""
        self._large.close()
        if self._epoll >= 0:
            self._loop.remove_reader(self._epoll)
            os.close(self._epoll)
            self._epoll = -1

    def use_buffer(self, buffer):
        """Where reads go from now on: the processor has another shared buffer."""
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        self._shared = <uint8_t*>view.buf
        self._shared_bytes = view.len
        PyBuffer_Release(&view)
        # The memory stays where it is for as long as the memoryview is referred to.
        self._shared_buffer = buffer

    def open(self, channel, connected, FastHandler fast_path):
        """Take a connected socket for a channel, and read it from now on."""
        cdef SocketTransport transport = SocketTransport.__new__(SocketTransport)
        transport.channel = channel
        transport.state = channel.state
        transport.connected = connected
        transport.loop = self._loop
        transport.selector = self
        transport.open_ones = self._transports
        transport.fast_path = fast_path
        transport.epoll = self._epoll
        ms_transport_open(&transport.link, connected.fileno())
        transport.is_read = True
        transport.watch()
        self._transports.add(transport)
        channel.connection_made(transport)

    def read_buffered(self, SocketTransport transport):
        """Read what a transport has taken from its socket already: no epoll tells of that."""
        self._now_ms = self._processor.begin_turn()
        if transport.is_read:
            self._try_to_read(transport)
            self._prepared.complete()

    def offer_unhandled(self, SocketTransport transport):
        """Offer what an earlier turn has left to the fast path: how many bytes it has taken."""
        cdef ConnectionState state = transport.state
        cdef int64_t start = state.start, end = start
        if transport.fast_path is not None and state.takes_fast_path():
            try:
                end = self._prepared.offer(
                    transport, state.own_base if state.own_bytes > 0 else self._shared,
                    start, state.end)
                self._prepared.complete()
            except Exception as error:
                state.is_open = False
                self._prepared.report(transport, error)
        return end - start

    # When connections are ready.

    def _on_ready(self):
        """The loop was woken up."""
        cdef ms_event events[EVENTS_MAX]
        cdef int count = ms_epoll_ready(self._epoll, events, EVENTS_MAX)
        ms_busy_poll_woken(&self._busy_poll)
        self._serve(events, count)

    def _spin(self):
        """Spin for the next request once more; others had their turn meanwhile."""
        cdef ms_event events[EVENTS_MAX]
        cdef int count
        self._is_spin_due = False
        if self._epoll >= 0:
            with nogil:
                count = ms_busy_poll_spin(&self._busy_poll, self._epoll, events, EVENTS_MAX)
            self._serve(events, count)

    cdef _serve(self, ms_event* events, int count):
        """Serve what is ready, and spin for the next request for as long as that pays."""
        cdef int64_t answered
        cdef int spins = 0
        while count > 0:
            answered = self._turn(events, count)
            if (count > 1 or answered != 1 or not ms_busy_poll_answered(&self._busy_poll)
                    or self._processor.is_turn_coming):
                return
            spins += 1
            if spins == SPINS_MAX:
                if not self._is_spin_due:
                    self._is_spin_due = True
                    self._loop.call_soon(self._spin)
                return
            with nogil:
                count = ms_busy_poll_spin(&self._busy_poll, self._epoll, events, EVENTS_MAX)

    cdef int64_t _turn(self, ms_event* events, int count) except -1:
        """Read every connection that is ready, then complete; how many requests were answered."""
        cdef PyObject* large[EVENTS_MAX]
        cdef SocketTransport transport
        cdef int i, large_count = 0
        cdef bint has_received = False
        cdef int64_t answered = self._prepared.answered
        self._now_ms = self._processor.begin_turn()
        for i in range(count):
            if ms_event_tag(&events[i]) == NULL:
                has_received = True
                continue
            transport = <SocketTransport>ms_event_tag(&events[i])
            # One that was read before it in this turn may have muted or closed it.
            if transport.is_read:
                if self._large.sends_large(transport):
                    large[large_count] = <PyObject*>transport
                    large_count += 1
                else:
                    self._try_to_read(transport)
        if large_count > 0:
            self._read_large(large, large_count)
        if has_received:
            self._collect()
        try:
            self._prepared.complete()
        except Exception as error:
            self._prepared.report(None, error)
        # It does not pay to spin for the next request while the thread receives it.
        return 0 if has_received else self._prepared.answered - answered

    cdef int _read_large(self, PyObject** waiting, int count) except -1:
        cdef SocketTransport transport
        count = self._large.begin_turn(waiting, count, self._now_ms)
        while True:
            transport = self._large.next_to_read(waiting, &count)
            if transport is None:
                return 0
            self._received = 0
            self._try_to_read(transport)
            self._large.note_read(self._received)

    cdef int _collect(self) except -1:
        """Handle what the thread has received, up to as much as is read in a turn."""
        cdef SocketTransport transport
        cdef int64_t count
        self._large.begin_collecting()
        while True:
            transport = self._large.next_received()
            if transport is None:
                return 0
            count = transport.end_handoff()
            try:
                self._handle_received(transport, count)
                self._large.watch_again(transport, count > 0 and transport.handoff.result > 0)
            except Exception as error:
                self._prepared.report(transport, error)

    cdef int _handle_received(self, SocketTransport transport, int64_t count) except -1:
        """As if it had been read here."""
        cdef int64_t start = transport.handoff.start, handled = start
        transport.state.turn_frames = 0
        cdef int64_t result = transport.handoff.result
        self._prepared.complete()
        if count > 0:
            handled = self._prepared.offer(
                transport, transport.handoff.base, start, transport.handoff.end)
            self._prepared.complete()
            transport.channel.buffer_updated(count, 0, handled - start)
        if result <= 0:
            self._ended(transport, result)
        return 0

    # Reading.

    cdef _try_to_read(self, SocketTransport transport):
        try:
            self._read(transport)
            while transport.is_read and transport.has_buffered():
                self._read(transport)
        except Exception as error:
            self._prepared.report(transport, error)

    cdef int _read(self, SocketTransport transport) except -1:
        cdef ConnectionState state = transport.state
        state.turn_frames = 0
        if transport.fast_path is None or not state.takes_fast_path():
            self._prepared.complete()
            return self._read_for_channel(transport)
        if state.own_bytes > 0:
            return self._read_own(transport)
        if state.carried_bytes == 0:
            return self._read_shared(transport)
        self._prepared.complete()
        return self._read_behind(transport)

    cdef int64_t _receive(self, SocketTransport transport, uint8_t* room, int64_t size) noexcept:
        self._received = transport.link.receive(&transport.link, room, size)
        return self._received

    cdef int _read_for_channel(self, SocketTransport transport) except -1:
        """All is left to the channel."""
        cdef Py_buffer view
        cdef int64_t count
        if transport.state.own_bytes == 0 and transport.state.carried_bytes == 0:
            count = self._receive(transport, self._shared, self._read_bytes_max)
        else:
            PyObject_GetBuffer(transport.channel.space(), &view, PyBUF_WRITABLE)
            count = self._receive(transport, <uint8_t*>view.buf, view.len)
            PyBuffer_Release(&view)
        if count > 0:
            transport.channel.buffer_updated(count)
        else:
            self._ended(transport, count)
        return 0

    cdef int _read_shared(self, SocketTransport transport) except -1:
        """The common case: the connection begins with a frame, behind those of others."""
        if self._shared_bytes - self._prepared.shared_used < ROOM_BYTES_MIN:
            self._prepared.complete()
        cdef int64_t start = self._prepared.shared_used
        cdef int64_t count = self._receive(
            transport, self._shared + start, min(self._shared_bytes - start, self._read_bytes_max))
        if count <= 0:
            return self._ended(transport, count)
        cdef int64_t handled = self._prepared.offer(transport, self._shared, start, start + count)
        if handled == start + count:
            transport.state.bytes_in += count
            transport.state.last_active_ms = self._now_ms
            self._prepared.shared_used = handled
        else:
            self._prepared.complete()
            transport.channel.buffer_updated(count, start, handled - start)
        return 0

    cdef int _read_own(self, SocketTransport transport) except -1:
        """Behind bytes in the connection's own buffer: they stay there until all is completed."""
        cdef ConnectionState state = transport.state
        cdef int64_t start = state.start, end = state.end, handled
        cdef int64_t count = self._receive(
            transport, state.own_base + end, state.own_bytes - end)
        if count <= 0:
            return self._ended(transport, count)
        handled = self._prepared.offer(transport, state.own_base, start, end + count)
        return self._prepared.leave_unread(transport, count, handled - start)

    cdef int _read_behind(self, SocketTransport transport) except -1:
        """Behind a few bytes of an earlier read, which are put into the shared buffer again."""
        cdef Py_buffer view
        cdef int64_t end = transport.state.carried_bytes, count, handled
        PyObject_GetBuffer(transport.channel.space(), &view, PyBUF_WRITABLE)
        try:
            count = self._receive(transport, <uint8_t*>view.buf, view.len)
            if count <= 0:
                return self._ended(transport, count)
            handled = self._prepared.offer(transport, <uint8_t*>view.buf - end, 0, end + count)
            self._prepared.complete()
        finally:
            PyBuffer_Release(&view)
        transport.channel.buffer_updated(count, 0, handled)
        return 0

    cdef int _ended(self, SocketTransport transport, int64_t count) except -1:
        """Nothing was read."""
        if count == 0:
            self._prepared.complete()
            transport.channel.eof_received()
            transport.fail(None)
        elif count not in (-EAGAIN, -EINTR):
            transport.fail(OSError(-count, os.strerror(-count)))
        return 0
