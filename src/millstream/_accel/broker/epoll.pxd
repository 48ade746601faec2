"""What the extension modules take from epoll.h. See there."""

cdef extern from "broker/epoll.h" nogil:
    ctypedef struct ms_event:
        pass
    int ms_epoll_create()
    int ms_epoll_add(int epoll, int descriptor, void* tag)
    int ms_epoll_add_eventfd(int epoll, int descriptor)
    int ms_epoll_remove(int epoll, int descriptor)
    int ms_epoll_ready(int epoll, ms_event* events, int count)
    void* ms_event_tag(const ms_event* event)
