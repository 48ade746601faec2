# cython: language_level=3, freethreading_compatible=True
"""A plain socket that `selector` reads, with the face of a transport.

A `KafkaChannel` and its gate ask it to pause, to go on and to close, as they ask the loop's own
transports. It never writes: answers leave beneath it. While large frames arrive it may be lent to a
`BulkReceiver`, which nobody notices who pauses or closes it.
"""

from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.ref cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.bulk_receiver cimport BulkReceiver
from millstream._accel.broker.channel_state cimport slot, slots
from millstream._accel.broker.sockets cimport (
    SHUT_WR, ms_epoll_add, ms_epoll_remove, ms_widen_window)

import os

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
        if self.borrower is not None:
            self.borrower.recall(&self.loan)
            self.channel.take_in(self.take_back())

    def resume_reading(self):
        """Read again."""
        if not self.is_read and not self.is_closed:
            self.is_read = True
            try:
                self.watch()
            except OSError as error:
                self.fail(error)

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

    cdef int watch(self) except -1:
        """Let the selector hear of bytes that arrive."""
        if ms_epoll_add(self.epoll, self.descriptor, <PyObject*>self) < 0:
            raise OSError(errno, os.strerror(errno))
        self.is_watched = True
        return 0

    cdef int unwatch(self) except -1:
        """Let the selector hear nothing."""
        if self.is_watched:
            self.is_watched = False
            ms_epoll_remove(self.epoll, self.descriptor)
        return 0

    cdef int widen(self) except -1:
        """Have the kernel take in a few large frames that wait for their turn."""
        if not self.is_wide:
            self.is_wide = True
            ms_widen_window(self.descriptor, WINDOW_BYTES)
        return 0

    cdef bint lend(self, BulkReceiver borrower) except -1:
        """Let somebody else receive into the connection's own buffer. False if that cannot be."""
        cdef object receiver = slot(self.channel, slots.receiver)
        cdef Py_buffer* view = PyMemoryView_GET_BUFFER(slot(receiver, slots.own))
        self.loan.descriptor = self.descriptor
        self.loan.base = <uint8_t*>view.buf
        self.loan.size = view.len
        self.loan.start = slot(receiver, slots.start)
        self.loan.end = self.lent_end = slot(receiver, slots.end)
        self.loan.check = self.express.check
        if not borrower.lend(&self.loan, self):
            return False
        self.borrower = borrower
        self.unwatch()
        return True

    cdef int64_t take_back(self) except -1:
        """It is lent no more: how many bytes were received. Nobody watches it yet."""
        self.borrower = None
        return self.loan.end - self.lent_end

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
