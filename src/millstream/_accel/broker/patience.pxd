"""What `selector` takes from patience.h. See there."""

from millstream._accel.broker.sockets cimport ms_event

cdef extern from "broker/patience.h" nogil:
    const int MS_QUICK_MIN
    ctypedef struct ms_patience:
        int quick_needed
    void ms_patience_woken(ms_patience* patience)
    bint ms_patience_answered(ms_patience* patience)
    int ms_patience_look(ms_patience* patience, int epoll, ms_event* events, int count)
