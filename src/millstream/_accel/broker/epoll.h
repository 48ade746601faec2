/* epoll for the selector. */

#ifndef MILLSTREAM_EPOLL_H
#define MILLSTREAM_EPOLL_H

#include <sys/epoll.h>

typedef struct epoll_event ms_event;

static inline int ms_epoll_create(void) { return epoll_create1(EPOLL_CLOEXEC); }

/* Watch a descriptor for bytes to read; hang-ups and errors come as such too. */
static inline int ms_epoll_add(int epoll, int descriptor, void *tag)
{
    ms_event event = {.events = EPOLLIN, .data = {.ptr = tag}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

/* Hear of an eventfd each time something is written to it; it need not be read. It has no tag. */
static inline int ms_epoll_add_eventfd(int epoll, int descriptor)
{
    ms_event event = {.events = EPOLLIN | EPOLLET};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static inline int ms_epoll_remove(int epoll, int descriptor)
{
    ms_event event = {0};
    return epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, &event);
}

/* Which descriptors are ready now; never waits. */
static inline int ms_epoll_ready(int epoll, ms_event *events, int count)
{
    return epoll_wait(epoll, events, count, 0);
}

static inline void *ms_event_tag(const ms_event *event) { return event->data.ptr; }

#endif
