# cython: language_level=3, freethreading_compatible=True
"""A socket that `selector` reads, with the methods of an asyncio transport.

A `KafkaChannel` and its gate ask it to pause, to go on and to close, as they ask the loop's own
transports. It never writes: answers leave beneath it. While large frames arrive it may be handed
off to a `ReceivingThread`; a caller that pauses or closes it does not notice.
"""

from cpython.ref cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport int64_t

from millstream._accel.broker.epoll cimport ms_epoll_add, ms_epoll_remove
from millstream._accel.broker.receiving_thread cimport ReceivingThread
from millstream._accel.broker.transports cimport ms_transport_widen

import os
from socket import SHUT_WR

cdef enum:
    # What fits into the kernel of a connection that sends large frames.
    WINDOW_BYTES = 8 * 1024 * 1024


cdef class SocketTransport:
    """What `KafkaChannel` and its gate ask of a transport; it only reads, as the others do."""

    def __init__(self):
        raise TypeError("a selector makes them")

    def is_closing(self):
        """Whether it was closed, or is about to be."""
        return self.is_closed

    def is_reading(self):
        """Whether bytes that arrive are read."""
        return self.is_read

    def pause_reading(self):
        """Leave what arrives in the kernel. The peer's end is not noticed meanwhile either."""
        self.is_read = False
        self.unwatch()
        if self.receiver is not None:
            self.receiver.take_back(&self.handoff)
            self.channel.take_in(self.end_handoff())

    def resume_reading(self):
        """Read again."""
        if not self.is_read and not self.is_closed:
            self.is_read = True
            try:
                self.watch()
            except OSError as error:
                self.fail(error)

    def offer_unhandled(self):
        """Offer received frames to the fast path: how many bytes it has taken."""
        return self.selector.offer_unhandled(self)

    def can_write_eof(self):
        """A socket can be closed in one direction."""
        return True

    def write_eof(self):
        """Send nothing more."""
        self.connected.shutdown(SHUT_WR)

    def close(self):
        """Close soon. There is nothing to flush: answers do not go through here."""
        self.fail(None)

    def abort(self):
        """The same."""
        self.fail(None)

    cdef bint has_buffered(self) noexcept:
        """Whether there are bytes to receive that epoll does not tell of."""
        return self.link.has_buffered != NULL and self.link.has_buffered(&self.link)

    cdef int watch(self) except -1:
        """Let the selector hear of bytes that arrive."""
        if ms_epoll_add(self.epoll, self.link.descriptor, <PyObject*>self) < 0:
            raise OSError(errno, os.strerror(errno))
        self.is_watched = True
        if self.has_buffered():
            self.loop.call_soon(self.selector.read_buffered, self)
        return 0

    cdef int unwatch(self) except -1:
        """Let the selector hear nothing."""
        if self.is_watched:
            self.is_watched = False
            ms_epoll_remove(self.epoll, self.link.descriptor)
        return 0

    cdef int widen(self) except -1:
        """Have the kernel take in a few large frames that wait for their turn."""
        if not self.is_wide:
            self.is_wide = True
            ms_transport_widen(&self.link, WINDOW_BYTES)
        return 0

    cdef bint hand_off(self, ReceivingThread receiver) except -1:
        """Let a thread receive into the connection's own buffer. False if that cannot be."""
        self.handoff.transport = &self.link
        self.handoff.base = self.state.own_base
        self.handoff.size = self.state.own_bytes
        self.handoff.start = self.state.start
        self.handoff.end = self.end_before = self.state.end
        if not receiver.hand_off(&self.handoff, self):
            return False
        self.receiver = receiver
        self.unwatch()
        return True

    cdef int64_t end_handoff(self) except -1:
        """The thread has it no more: how many bytes were received. Nothing watches it yet."""
        self.receiver = None
        return self.handoff.end - self.end_before

    cdef fail(self, error):
        """Close soon, because of an error or None."""
        if not self.is_closed:
            self.is_closed = True
            self.error = error
            self.pause_reading()
            self.loop.call_soon(self._lost)

    def _lost(self):
        channel, self.channel = self.channel, None
        try:
            channel.connection_lost(self.error)
        finally:
            self.connected.close()
            self.open_ones.discard(self)
