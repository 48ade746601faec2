# cython: language_level=3, freethreading_compatible=True
"""An epoll of its own beneath the event loop: when its sockets are looked at, and who is ready.

`selector` is one, and does the reading. The loop watches the epoll's descriptor and calls when
somebody is ready. After a single request whose client sends the next one at once, it is looked for
before the loop may sleep; patience.h says when.
"""

from libc.errno cimport errno
from libc.stdint cimport int64_t

from millstream._accel.broker.patience cimport (
    MS_QUICK_MIN, ms_patience_answered, ms_patience_look, ms_patience_woken)
from millstream._accel.broker.sockets cimport ms_epoll_create, ms_epoll_ready, ms_event

import os

cdef enum:
    # So often the next request is looked for before everybody else on the loop has a turn.
    LOOKS_MAX = 8


cdef class Poller:
    """Who is ready; `turn` serves them."""

    def __cinit__(self):
        self._epoll = -1
        self._patience.quick_needed = MS_QUICK_MIN

    def __init__(self, loop, processor):
        self._loop = loop
        self._processor = processor
        self._epoll = ms_epoll_create()
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        loop.add_reader(self._epoll, self._on_ready)

    def close(self):
        """Look at nobody any more. The connections are closed by then."""
        if self._epoll >= 0:
            self._loop.remove_reader(self._epoll)
            os.close(self._epoll)
            self._epoll = -1

    def _on_ready(self):
        """Somebody is ready."""
        cdef ms_event events[EVENTS_MAX]
        cdef int count = ms_epoll_ready(self._epoll, events, EVENTS_MAX)
        ms_patience_woken(&self._patience)
        self._serve(events, count)

    def _look(self):
        """Look for the next request once more; others had their turn meanwhile."""
        cdef ms_event events[EVENTS_MAX]
        cdef int count
        self._is_looking = False
        if self._epoll >= 0:
            with nogil:
                count = ms_patience_look(&self._patience, self._epoll, events, EVENTS_MAX)
            self._serve(events, count)

    cdef _serve(self, ms_event* events, int count):
        """Serve who is ready, and look for the next request for as long as that pays."""
        cdef int64_t answered
        cdef int looks = 0
        while count > 0:
            answered = self.turn(events, count)
            if (count > 1 or answered != 1 or not ms_patience_answered(&self._patience)
                    or self._processor.is_turn_coming):
                return
            looks += 1
            if looks == LOOKS_MAX:
                if not self._is_looking:
                    self._is_looking = True
                    self._loop.call_soon(self._look)
                return
            with nogil:
                count = ms_patience_look(&self._patience, self._epoll, events, EVENTS_MAX)

    cdef int64_t turn(self, ms_event* events, int count) except -1:
        """Serve these; how many requests were answered at once."""
        return 0
