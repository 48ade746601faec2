"""What `selector` takes from busy_poll.h. See there."""

from millstream._accel.broker.epoll cimport ms_event

cdef extern from "broker/busy_poll.h" nogil:
    ctypedef struct ms_busy_poll:
        pass
    void ms_busy_poll_init(ms_busy_poll* poll)
    void ms_busy_poll_woken(ms_busy_poll* poll)
    bint ms_busy_poll_answered(ms_busy_poll* poll)
    int ms_busy_poll_spin(ms_busy_poll* poll, int epoll, ms_event* events, int count)
