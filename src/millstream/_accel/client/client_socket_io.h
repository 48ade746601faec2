/* What a selector does with one socket: connect, send, receive and cut into frames.

   Sending may be done by any thread, one at a time per connection; the rest by the loop alone. */

#ifndef MILLSTREAM_CLIENT_SOCKET_IO_H
#define MILLSTREAM_CLIENT_SOCKET_IO_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "client/client_sockets.h"

#define MS_VECTORS_MAX 64
#define MS_SMALL_FRAME 2048 /* so small that a copy costs less than a block and its owner */
#define MS_READS_MAX 64     /* of one connection, before the others have their turn */
#define MS_WHOLE_FRAME_MIN (128 * 1024) /* below, waiting for the whole gains nothing */
#define MS_WHOLE_FRAME_MAX (8 << 20)    /* the system may set a lower bound */

/* Under the lock: what epoll is to look for. */
static inline void ms_watch(ms_selector *selector, ms_connection *connection)
{
    struct epoll_event wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.data.u64 = (uint64_t)connection->serial;
    if (connection->state == MS_CONNECTING || connection->wants_to_write)
        wanted.events |= EPOLLOUT;
    if (connection->state == MS_OPEN && !connection->is_paused)
        wanted.events |= EPOLLIN;
    epoll_ctl(selector->epoll_fd, EPOLL_CTL_MOD, connection->fd, &wanted);
}

static inline void ms_want_to_write(ms_selector *selector, ms_connection *connection, int wanted)
{
    if (connection->wants_to_write != wanted) {
        connection->wants_to_write = wanted;
        ms_watch(selector, connection);
    }
}

/* ---- sending ---- */

/* Under the lock: as much of the queue as fits one call. */
static inline int ms_gather(ms_connection *connection, struct iovec *vectors, int64_t *bytes)
{
    int count = 0;
    *bytes = 0;
    for (ms_outgoing *out = connection->out_first; out; out = out->next) {
        for (int i = out->vector; i < out->vector_count; i++) {
            if (count == MS_VECTORS_MAX)
                return count;
            vectors[count++] = out->vectors[i];
            *bytes += (int64_t)out->vectors[i].iov_len;
        }
    }
    return count;
}

/* Under the lock: `sent` bytes of the queue are gone. */
static inline void ms_consume(ms_selector *selector, ms_connection *connection, int64_t sent)
{
    ms_outgoing *out;
    while ((out = connection->out_first)) {
        while (out->vector < out->vector_count) {
            struct iovec *vector = &out->vectors[out->vector];
            if ((int64_t)vector->iov_len > sent) {
                vector->iov_base = (uint8_t *)vector->iov_base + sent;
                vector->iov_len -= (size_t)sent;
                return;
            }
            sent -= (int64_t)vector->iov_len;
            out->vector++;
        }
        connection->out_first = out->next;
        if (!out->next)
            connection->out_end = &connection->out_first;
        ms_outgoing_done(selector, out);
    }
}

/* Under the lock, which is let go during each call: send the queue until the socket is full.
   Nothing happens while another thread is at it; that one goes on with what was added. */
static inline void ms_flush(ms_selector *selector, ms_connection *connection)
{
    struct iovec vectors[MS_VECTORS_MAX];
    struct msghdr message;
    int64_t bytes;
    if (connection->is_writing)
        return;
    connection->is_writing = 1;
    while (connection->state == MS_OPEN && connection->out_first) {
        memset(&message, 0, sizeof message);
        message.msg_iov = vectors;
        message.msg_iovlen = (size_t)ms_gather(connection, vectors, &bytes);
        pthread_mutex_unlock(&selector->lock);
        ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        int code = errno;
        pthread_mutex_lock(&selector->lock);
        if (sent >= 0)
            ms_consume(selector, connection, sent);
        if (connection->state != MS_OPEN || (sent < 0 && code == EINTR))
            continue;
        if (sent < 0 && code != EAGAIN && code != ENOBUFS) {
            ms_connection_note(connection, code);
            ms_connection_fail(selector, connection);
        } else if (sent < bytes) {
            ms_want_to_write(selector, connection, 1);
            break;
        }
    }
    connection->is_writing = 0;
    if (connection->state == MS_OPEN && !connection->out_first)
        ms_want_to_write(selector, connection, 0);
    if (connection->state == MS_DEAD) {
        /* It ended while this thread was in `sendmsg`, so it is closed only now. */
        selector->is_dirty = 1;
        ms_wake_loop(selector);
        pthread_cond_broadcast(&selector->written);
    }
}

/* ---- receiving, by the loop, without the lock ---- */

typedef struct {
    ms_selector *selector;
    ms_connection *connection;
    ms_events events;
    int code;      /* not 0: the connection has to end */
    int64_t claim; /* the size that a frame cannot have */
} ms_reading;

/* The four bytes of a size are there. */
static inline int ms_begin_frame(ms_reading *reading)
{
    ms_connection *connection = reading->connection;
    const uint8_t *p = connection->size_bytes;
    int64_t size = (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8
                             | (uint32_t)p[3]);
    if (size < 1 || size > reading->selector->frame_bytes_max) {
        reading->code = MS_END_FRAME_SIZE;
        reading->claim = size;
        return 0;
    }
    connection->block = ms_block_take(reading->selector->pool, size);
    if (!connection->block) {
        reading->code = ENOMEM;
        return 0;
    }
    connection->frame_size = size;
    connection->frame_have = 0;
    return 1;
}

/* A whole frame is there: is it an answer to the driver? */
static inline void ms_tell_driver(ms_reading *reading)
{
    ms_driver *driver = __atomic_load_n(&reading->selector->driver, __ATOMIC_ACQUIRE);
    ms_connection *connection = reading->connection;
    if (!driver || connection->frame_size < 4)
        return;
    const uint8_t *p = connection->block->data;
    int64_t id = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
    if (driver->first_id <= id && id < driver->end_id)
        driver->answered(driver, connection, p, connection->frame_size);
}

static inline int ms_end_frame(ms_reading *reading)
{
    ms_connection *connection = reading->connection;
    int64_t size = connection->frame_size;
    int is_small = size <= MS_SMALL_FRAME;
    ms_event *event = ms_event_new(MS_RECEIVED, connection->id, is_small ? size : 0);
    if (!event) {
        reading->code = ENOMEM;
        return 0;
    }
    event->size = size;
    ms_tell_driver(reading);
    if (is_small) {
        memcpy(event->data, connection->block->data, (size_t)size);
        ms_block_give_back(reading->selector->pool, connection->block);
    } else {
        event->block = connection->block;
    }
    connection->block = NULL;
    connection->size_have = 0;
    ms_events_add(&reading->events, event);
    return 1;
}

/* Bytes that came into the scratch: cut into frames, the last of which may be incomplete. */
static inline int ms_cut(ms_reading *reading, const uint8_t *data, int64_t left)
{
    ms_connection *connection = reading->connection;
    while (left > 0) {
        if (!connection->block) {
            connection->size_bytes[connection->size_have++] = *data++;
            left--;
            if (connection->size_have == 4 && !ms_begin_frame(reading))
                return 0;
            continue;
        }
        int64_t taken = connection->frame_size - connection->frame_have;
        if (taken > left)
            taken = left;
        memcpy(connection->block->data + connection->frame_have, data, (size_t)taken);
        connection->frame_have += taken;
        data += taken;
        left -= taken;
        if (connection->frame_have == connection->frame_size && !ms_end_frame(reading))
            return 0;
    }
    return 1;
}

/* One call of the system: into the frame at hand first, then into the scratch. 1 to go on. */
static inline int ms_read_once(ms_reading *reading)
{
    ms_connection *connection = reading->connection;
    uint8_t *scratch = reading->selector->scratch;
    int64_t rest = connection->block ? connection->frame_size - connection->frame_have : 0;
    struct iovec vectors[2];
    if (rest) {
        vectors[0].iov_base = connection->block->data + connection->frame_have;
        vectors[0].iov_len = (size_t)rest;
    }
    vectors[rest ? 1 : 0].iov_base = scratch;
    vectors[rest ? 1 : 0].iov_len = MS_SCRATCH_SIZE;
    ssize_t got = readv(connection->fd, vectors, rest ? 2 : 1);
    if (got < 0) {
        if (errno == EINTR)
            return 1;
        if (errno != EAGAIN)
            reading->code = errno;
        return 0;
    }
    if (got == 0) {
        reading->code = MS_END_CLOSED_BY_PEER;
        return 0;
    }
    if (rest) {
        int64_t filled = got < rest ? got : rest;
        connection->frame_have += filled;
        if (filled == rest && !ms_end_frame(reading))
            return 0;
        if (got > rest && !ms_cut(reading, scratch, got - rest))
            return 0;
    } else if (!ms_cut(reading, scratch, got)) {
        return 0;
    }
    return got == rest + MS_SCRATCH_SIZE;
}

/* Under the lock: what was received is for poll(); what was closed meanwhile has no events. */
static inline void ms_hand_over(ms_reading *reading)
{
    ms_selector *selector = reading->selector;
    ms_event *event = reading->events.first;
    while (event) {
        ms_event *next = event->next;
        if (reading->connection->state == MS_OPEN)
            ms_events_add(&selector->events, event);
        else
            ms_event_free(selector, event);
        event = next;
    }
    if (selector->events.first)
        ms_announce(selector);
}

/* The rest of a large frame is read when all of it is there: reading while the peer still sends costs
   nearly twice as much, as its sending is then done on our time, piece by piece. */
static inline void ms_set_low_water(ms_connection *connection)
{
    int64_t rest = connection->block ? connection->frame_size - connection->frame_have : 0;
    int wanted = rest < MS_WHOLE_FRAME_MIN ? 1
        : rest > MS_WHOLE_FRAME_MAX       ? MS_WHOLE_FRAME_MAX
                                          : (int)rest;
    if (wanted == connection->low_water)
        return;
    if (setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0)
        connection->low_water = wanted;
}

/* The loop, without the lock: all that the socket has. */
static inline void ms_receive(ms_selector *selector, ms_connection *connection)
{
    ms_reading reading;
    reading.selector = selector;
    reading.connection = connection;
    reading.code = 0;
    reading.claim = 0;
    ms_events_reset(&reading.events);
    for (int reads = 0; reads < MS_READS_MAX; reads++)
        if (!ms_read_once(&reading) || reading.events.bytes > selector->received_bytes_max)
            break;
    if (!reading.code)
        ms_set_low_water(connection);
    pthread_mutex_lock(&selector->lock);
    ms_hand_over(&reading);
    if (connection->state == MS_OPEN) {
        if (reading.code) {
            connection->farewell->size = reading.claim;
            ms_connection_note(connection, reading.code);
            ms_connection_fail(selector, connection);
        } else if (selector->events.bytes > selector->received_bytes_max) {
            connection->is_paused = 1;
            selector->is_paused = 1;
            ms_watch(selector, connection);
        }
    }
    pthread_mutex_unlock(&selector->lock);
}

/* ---- connecting, by the loop, under the lock ---- */

static inline socklen_t ms_address_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* 0, or the errno of what went wrong with this address. */
static inline int ms_begin_connect(
    ms_selector *selector, ms_connection *connection, const struct sockaddr_storage *address)
{
    int on = 1;
    struct epoll_event wanted;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0)
        return errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    memset(&wanted, 0, sizeof wanted);
    wanted.data.u64 = (uint64_t)connection->serial;
    wanted.events = EPOLLOUT;
    if ((connect(fd, (const struct sockaddr *)address, ms_address_size(address)) < 0
         && errno != EINPROGRESS && errno != EINTR)
        || epoll_ctl(selector->epoll_fd, EPOLL_CTL_ADD, fd, &wanted) < 0) {
        int code = errno;
        close(fd);
        return code;
    }
    connection->fd = fd;
    connection->state = MS_CONNECTING;
    return 0;
}

/* The next address that can be tried at all; `code`: what was wrong with the one before, or 0. */
static inline void ms_try_next(ms_selector *selector, ms_connection *connection, int code)
{
    ms_connection_unwatch(selector, connection);
    if (connection->fd >= 0)
        ms_close_socket(connection->fd);
    connection->fd = -1;
    connection->state = MS_RESOLVING;
    if (code)
        ms_connection_note(connection, code);
    while (connection->address_next < connection->address_count) {
        code = ms_begin_connect(
            selector, connection, &connection->addresses[connection->address_next++]);
        if (!code)
            return;
        ms_connection_note(connection, code);
    }
    ms_connection_fail(selector, connection);
}

static inline int ms_is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return 0;
    if (a->ss_family == AF_INET6)
        return !memcmp(
            &((const struct sockaddr_in6 *)a)->sin6_addr,
            &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr
        == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* Between two ends on one machine nothing is gained by pacing, and its timers cost more than what
   they pace (decisions/producer-speed.md). BBR is what paces; Reno is always there. */
static inline void ms_forgo_pacing(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t here_size = sizeof here, there_size = sizeof there;
    char name[16] = "";
    socklen_t name_size = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&here, &here_size) == 0
        && getpeername(fd, (struct sockaddr *)&there, &there_size) == 0
        && ms_is_same_host(&here, &there)
        && getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_size) == 0
        && !strncmp(name, "bbr", 3))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/* The socket has come to a decision. */
static inline void ms_end_connect(ms_selector *selector, ms_connection *connection)
{
    int code = 0;
    socklen_t size = sizeof code;
    ms_event *event;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    if (!code && !(event = ms_event_new(MS_CONNECTED, connection->id, 0)))
        code = ENOMEM;
    if (code) {
        ms_try_next(selector, connection, code);
        return;
    }
    ms_forgo_pacing(connection->fd);
    connection->state = MS_OPEN;
    connection->farewell->code_count = 0;
    ms_watch(selector, connection);
    ms_events_add(&selector->events, event);
    ms_announce(selector);
    ms_flush(selector, connection);
}

#endif
