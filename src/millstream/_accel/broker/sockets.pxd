"""What `selector` takes from sockets.h. See there."""

from libc.stdint cimport int64_t

cdef extern from "broker/sockets.h" nogil:
    const bint ms_has_epoll
    const int SHUT_WR
    ctypedef struct ms_event:
        pass
    int ms_epoll_create()
    int ms_epoll_add(int epoll, int descriptor, void* tag)
    int ms_epoll_add_news(int epoll, int descriptor)
    int ms_epoll_remove(int epoll, int descriptor)
    int ms_epoll_ready(int epoll, ms_event* events, int count)
    void* ms_event_tag(const ms_event* event)
    int64_t ms_receive(int descriptor, void* buffer, size_t size)
    void ms_widen_window(int descriptor, int size)
    int64_t ms_send(int descriptor, const void* data, size_t size)
