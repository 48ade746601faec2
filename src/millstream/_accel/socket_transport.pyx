# cython: language_level=3, freethreading_compatible=True
"""A plain socket that `selector` reads, with the face of a transport.

A `KafkaChannel` and its gate ask it to pause, to go on and to close, as they ask the loop's own
transports. It never writes: answers leave beneath it.
"""

from cpython.ref cimport PyObject
from libc.errno cimport errno

from millstream._accel.sockets cimport SHUT_WR, ms_epoll_add, ms_epoll_remove

import os


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
        if self.is_read:
            self.is_read = False
            ms_epoll_remove(self.epoll, self.descriptor)

    def resume_reading(self):
        """Read again."""
        if not self.is_read and not self.is_closed:
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
        self.is_read = True
        return 0

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
