/* Sockets and epoll for selector.pyx. On systems without epoll everything compiles and
   ms_has_epoll is 0: connections then stay with the event loop. */

#ifndef MILLSTREAM_SOCKETS_H
#define MILLSTREAM_SOCKETS_H

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __linux__

#include <sys/epoll.h>

static const int ms_has_epoll = 1;
typedef struct epoll_event ms_event;

static inline int ms_epoll_create(void) { return epoll_create1(EPOLL_CLOEXEC); }

/* Watch a descriptor for bytes to read; hang-ups and errors come as such too. */
static inline int ms_epoll_add(int epoll, int descriptor, void *tag)
{
    ms_event event = {.events = EPOLLIN, .data = {.ptr = tag}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

/* Hear of an eventfd each time somebody writes to it; it need not be read. It has no tag. */
static inline int ms_epoll_add_news(int epoll, int descriptor)
{
    ms_event event = {.events = EPOLLIN | EPOLLET};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static inline int ms_epoll_remove(int epoll, int descriptor)
{
    ms_event event = {0};
    return epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, &event);
}

/* Who is ready now; never waits. */
static inline int ms_epoll_ready(int epoll, ms_event *events, int count)
{
    return epoll_wait(epoll, events, count, 0);
}

static inline void *ms_event_tag(const ms_event *event) { return event->data.ptr; }

#else

static const int ms_has_epoll = 0;
typedef struct { void *tag; } ms_event;

static inline int ms_unsupported(void) { errno = ENOSYS; return -1; }
static inline int ms_epoll_create(void) { return ms_unsupported(); }
static inline int ms_epoll_add(int epoll, int descriptor, void *tag) { return ms_unsupported(); }
static inline int ms_epoll_add_news(int epoll, int descriptor) { return ms_unsupported(); }
static inline int ms_epoll_remove(int epoll, int descriptor) { return ms_unsupported(); }
static inline int ms_epoll_ready(int epoll, ms_event *events, int count) { return 0; }
static inline void *ms_event_tag(const ms_event *event) { return event->tag; }

#endif

#ifdef MSG_NOSIGNAL
#define MS_SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
#else
#define MS_SEND_FLAGS MSG_DONTWAIT
#endif

/* The bytes received, 0 at the end of the stream, -errno. */
static inline int64_t ms_receive(int descriptor, void *buffer, size_t size)
{
    ssize_t count = recv(descriptor, buffer, size, MSG_DONTWAIT);
    return count < 0 ? -(int64_t)errno : (int64_t)count;
}

/* Have the kernel take in so many bytes of a stream before anybody receives them. Left alone it finds
   out by and by how many that should be, and a limit that is set (SO_RCVBUF) is a small one on most
   systems and final. So it is told that nobody will look at fewer bytes, which makes it see to their
   room unless there is a limit, and then that somebody will. */
static inline void ms_widen_window(int descriptor, int size)
{
    const int any = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof size);
    setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
}

/* The bytes that the kernel took; 0 whatever the reason if it took none. */
static inline int64_t ms_send(int descriptor, const void *data, size_t size)
{
    ssize_t count = send(descriptor, data, size, MS_SEND_FLAGS);
    return count < 0 ? 0 : (int64_t)count;
}

#endif
