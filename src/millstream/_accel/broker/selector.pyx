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
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.ref cimport PyObject
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.channel_state cimport is_quiet, note_active, slot, slots
from millstream._accel.broker.express cimport ExpressHandler
from millstream._accel.broker.frame_stage cimport FrameStage
from millstream._accel.broker.poller cimport EVENTS_MAX
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.sockets cimport ms_event, ms_event_tag, ms_has_epoll, ms_receive

import os

IS_SUPPORTED = bool(ms_has_epoll)

cdef enum:
    # A read gets at least so much room, or what was staged is settled first.
    ROOM_BYTES_MIN = 128 * 1024


cdef class Selector(FrameStage):
    """Reads the plain connections of one loop, and answers what is simple. One thread only."""

    cdef object _now
    cdef set _transports
    cdef object _shared_buffer
    cdef uint8_t* _shared
    cdef int64_t _shared_bytes
    cdef int64_t _bytes_in
    # How many requests were answered without the full path, so far.
    cdef readonly int64_t answered

    def __init__(self, loop, processor):
        self._transports = set()
        self.use_buffer(processor.shared_buffer)
        self.read_bytes_max = len(processor.shared_space)
        FrameStage.__init__(self, loop, processor)

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
            self.settle()
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

    cdef int64_t _hand_over_counts(self) except -1:
        cdef int64_t requests = self.requests
        if requests:
            self._processor.requests_received += requests
            self._processor.bytes_in += self._bytes_in
            self.answered += requests
            self.requests = self._bytes_in = 0
        return requests

    # Reading.

    cdef int handle_received(self, SocketTransport transport, int64_t count) except -1:
        """As if it had been read here."""
        cdef int64_t start = transport.loan.start, handled = start
        cdef int64_t result = transport.loan.result
        self.settle()
        if count > 0 and is_quiet(transport.channel):
            handled = self.stage(
                transport, transport.loan.base, start, transport.loan.end, transport.loan.checked)
            self.settle()
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
            self.settle()
            return self._read_for_channel(transport, is_plain)
        if is_plain:
            return self._read_shared(transport)
        if has_own:
            return self._read_own(transport, receiver)
        self.settle()
        return self._read_behind(transport, receiver)

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
        if self._shared_bytes - self.shared_used < ROOM_BYTES_MIN:
            self.settle()
        cdef int64_t start = self.shared_used
        cdef int64_t count = self._receive(
            transport, self._shared + start, min(self._shared_bytes - start, self.read_bytes_max))
        if count <= 0:
            return self._ended(transport, count)
        cdef int64_t handled = self.stage(transport, self._shared, start, start + count, 0)
        if handled == start + count:
            self._bytes_in += count
            self.shared_used = handled
            note_active(transport.channel, self._now)
        else:
            self.settle()
            transport.channel.buffer_updated(count, start, handled - start)
        return 0

    cdef int _read_own(self, SocketTransport transport, receiver) except -1:
        """Behind bytes in the connection's own buffer: they stay there until all is settled."""
        cdef Py_buffer* own = PyMemoryView_GET_BUFFER(slot(receiver, slots.own))
        cdef uint8_t* base = <uint8_t*>own.buf
        cdef int64_t start = slot(receiver, slots.start), end = slot(receiver, slots.end)
        cdef int64_t handled, count = self._receive(transport, base + end, own.len - end)
        if count <= 0:
            return self._ended(transport, count)
        handled = self.stage(transport, base, start, end + count, 0)
        return self.leave_rest(transport, count, handled - start)

    cdef int _read_behind(self, SocketTransport transport, receiver) except -1:
        """Behind a few bytes of an earlier read, which are put into the shared buffer again."""
        cdef Py_buffer view
        cdef int64_t end = len(<bytes>slot(receiver, slots.carried)), count, handled
        PyObject_GetBuffer(receiver.space(), &view, PyBUF_WRITABLE)
        try:
            count = self._receive(transport, <uint8_t*>view.buf, view.len)
            if count <= 0:
                return self._ended(transport, count)
            handled = self.stage(transport, <uint8_t*>view.buf - end, 0, end + count, 0)
            self.settle()
        finally:
            PyBuffer_Release(&view)
        transport.channel.buffer_updated(count, 0, handled)
        return 0

    cdef int _ended(self, SocketTransport transport, int64_t count) except -1:
        """Nothing was read."""
        if count == 0:
            self.settle()
            transport.channel.eof_received()
            transport.fail(None)
        elif count not in (-EAGAIN, -EINTR):
            transport.fail(OSError(-count, os.strerror(-count)))
        return 0
