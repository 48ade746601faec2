"""The epoll of a `Selector`; see poller.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.patience cimport ms_patience
from millstream._accel.broker.sockets cimport ms_event

cdef enum:
    # So many are served in one turn at most.
    EVENTS_MAX = 64

cdef class Poller:
    cdef object _loop
    cdef object _processor
    cdef int _epoll
    cdef ms_patience _patience
    cdef bint _is_looking

    cdef _serve(self, ms_event* events, int count)
    cdef int64_t turn(self, ms_event* events, int count) except -1
