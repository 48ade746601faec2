/* See client_connection.h: connect, shake hands, send, receive and cut into frames. */

#include "client/client_connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

#define MS_VECTORS_MAX 64
#define MS_SMALL_FRAME 2048 /* so small that a copy costs less than a block and its owner */
#define MS_READS_MAX 64     /* of one connection, before the others have their turn */
#define MS_WHOLE_FRAME_MIN (128 * 1024) /* below, waiting for the whole gains nothing */
#define MS_WHOLE_FRAME_MAX (8 << 20)    /* the system may set a lower bound */

/* ---- frames on their way out ---- */

ms_outgoing *ms_outgoing_new(int vector_count, int view_count, int64_t copied)
{
    size_t vectors = sizeof(struct iovec) * (size_t)vector_count;
    size_t views = sizeof(Py_buffer) * (size_t)view_count;
    ms_outgoing *out = (ms_outgoing *)malloc(sizeof *out + vectors + views + (size_t)copied);
    if (!out)
        return NULL;
    memset(out, 0, sizeof *out);
    out->vector_count = vector_count;
    out->views = (Py_buffer *)((uint8_t *)out->vectors + vectors);
    return out;
}

ms_outgoing *ms_outgoing_copy(int64_t size, uint8_t **data)
{
    ms_outgoing *out = ms_outgoing_new(1, 0, size);
    if (!out)
        return NULL;
    *data = (uint8_t *)(out->vectors + 1);
    out->vectors[0].iov_base = *data;
    out->vectors[0].iov_len = (size_t)size;
    out->bytes = size;
    return out;
}

void ms_outgoing_done(ms_selector *selector, ms_outgoing *out)
{
    if (!out->view_count && !out->kept_count) {
        free(out);
        return;
    }
    out->next = selector->spent;
    selector->spent = out;
}

void ms_queue(ms_connection *connection, ms_outgoing *out)
{
    out->next = NULL;
    *connection->out_end = out;
    connection->out_end = &out->next;
}

/* ---- what epoll looks for ---- */

void ms_watch(ms_selector *selector, ms_connection *connection)
{
    struct epoll_event wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.data.u64 = (uint64_t)connection->serial;
    if (connection->state == MS_HANDSHAKING)
        wanted.events = connection->handshake == MS_HANDSHAKE_READS ? EPOLLIN : EPOLLOUT;
    else if (connection->wants_to_write)
        wanted.events |= EPOLLOUT;
    if (connection->state == MS_READY && !connection->is_paused)
        wanted.events |= EPOLLIN;
    epoll_ctl(selector->epoll_fd, EPOLL_CTL_MOD, connection->fd, &wanted);
}

static void ms_want_to_write(ms_selector *selector, ms_connection *connection, int wanted)
{
    if (connection->wants_to_write != wanted) {
        connection->wants_to_write = wanted;
        ms_watch(selector, connection);
    }
}

/* ---- sending ---- */

/* Under the lock: as much of the queue as fits one call. */
static int ms_gather(ms_connection *connection, struct iovec *vectors, int64_t *bytes)
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
static void ms_consume(ms_selector *selector, ms_connection *connection, int64_t sent)
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

void ms_flush(ms_selector *selector, ms_connection *connection)
{
    struct iovec vectors[MS_VECTORS_MAX];
    ms_client_transport *transport = &connection->transport;
    int64_t bytes;
    if (connection->is_writing)
        return;
    connection->is_writing = 1;
    while (connection->state == MS_READY && connection->out_first) {
        int count = ms_gather(connection, vectors, &bytes);
        pthread_mutex_unlock(&selector->lock);
        int64_t sent = transport->send(transport, vectors, count);
        pthread_mutex_lock(&selector->lock);
        if (sent >= 0)
            ms_consume(selector, connection, sent);
        if (connection->state != MS_READY)
            continue;
        if (sent < 0 && sent != -EAGAIN) {
            ms_connection_note(connection, (int)-sent);
            ms_connection_fail(selector, connection);
        } else if (sent < bytes) {
            ms_want_to_write(selector, connection, 1);
            break;
        }
    }
    connection->is_writing = 0;
    if (connection->state == MS_READY && !connection->out_first)
        ms_want_to_write(selector, connection, 0);
    if (connection->state == MS_DEAD) {
        /* It ended while this thread was sending, so it is closed only now. */
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
static int ms_begin_frame(ms_reading *reading)
{
    ms_connection *connection = reading->connection;
    int64_t size = (int32_t)ms_read_big_endian(connection->size_bytes, 4);
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
static void ms_tell_driver(ms_reading *reading)
{
    ms_driver *driver = __atomic_load_n(&reading->selector->driver, __ATOMIC_ACQUIRE);
    ms_connection *connection = reading->connection;
    if (!driver || connection->frame_size < 4)
        return;
    const uint8_t *p = connection->block->data;
    int64_t id = ms_read_big_endian(p, 4);
    if (driver->first_id <= id && id < driver->end_id)
        driver->answered(driver, connection, p, connection->frame_size);
}

static int ms_end_frame(ms_reading *reading)
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
        ms_block_release(reading->selector->pool, connection->block);
    } else {
        event->block = connection->block;
    }
    connection->block = NULL;
    connection->size_have = 0;
    ms_events_add(&reading->events, event);
    return 1;
}

/* Bytes that came into the scratch: cut into frames, the last of which may be incomplete. */
static int ms_cut(ms_reading *reading, const uint8_t *data, int64_t left)
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

static int ms_has_buffered(const ms_client_transport *transport)
{
    return transport->has_buffered && transport->has_buffered(transport);
}

/* One call: into the frame at hand first, then into the scratch. 1 to go on. */
static int ms_read_once(ms_reading *reading)
{
    ms_connection *connection = reading->connection;
    ms_client_transport *transport = &connection->transport;
    uint8_t *scratch = reading->selector->scratch;
    int64_t rest = connection->block ? connection->frame_size - connection->frame_have : 0;
    struct iovec vectors[2];
    if (rest) {
        vectors[0].iov_base = connection->block->data + connection->frame_have;
        vectors[0].iov_len = (size_t)rest;
    }
    vectors[rest ? 1 : 0].iov_base = scratch;
    vectors[rest ? 1 : 0].iov_len = MS_SCRATCH_SIZE;
    int64_t got = transport->receive(transport, vectors, rest ? 2 : 1);
    if (got <= 0) {
        if (got != -EAGAIN)
            reading->code = got ? (int)-got : MS_END_CLOSED_BY_PEER;
        return 0;
    }
    if (rest) {
        int64_t filled = got < rest ? got : rest;
        connection->frame_have += filled;
        if (filled == rest && !ms_end_frame(reading))
            return 0;
    }
    if (got > rest && !ms_cut(reading, scratch, got - rest))
        return 0;
    return got == rest + MS_SCRATCH_SIZE || ms_has_buffered(transport);
}

/* Under the lock: what was received is for poll(); what was closed meanwhile has no events. */
static void ms_hand_over(ms_reading *reading)
{
    ms_selector *selector = reading->selector;
    ms_event *event = reading->events.first;
    while (event) {
        ms_event *next = event->next;
        if (reading->connection->state == MS_READY)
            ms_events_add(&selector->events, event);
        else
            ms_event_free(selector, event);
        event = next;
    }
    if (selector->events.first)
        ms_announce(selector);
}

/* The rest of a large frame is read when all of it is there: reading while the peer still sends costs
   nearly twice as much, as its sending is then done on our time, piece by piece. A transport that
   buffers has bytes of the frame that the socket would wait for in vain. */
static void ms_set_low_water(ms_connection *connection)
{
    if (connection->transport.has_buffered)
        return;
    int64_t rest = connection->block ? connection->frame_size - connection->frame_have : 0;
    int wanted = rest < MS_WHOLE_FRAME_MIN ? 1
        : rest > MS_WHOLE_FRAME_MAX       ? MS_WHOLE_FRAME_MAX
                                          : (int)rest;
    if (wanted == connection->low_water)
        return;
    if (setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0)
        connection->low_water = wanted;
}

/* Under the lock: the loop comes back for bytes that are in the transport. */
static void ms_note_unread(ms_selector *selector, ms_connection *connection)
{
    connection->has_unread =
        connection->state == MS_READY && ms_has_buffered(&connection->transport);
    if (connection->has_unread && !connection->is_paused)
        selector->is_dirty = 1;
}

void ms_receive(ms_selector *selector, ms_connection *connection)
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
    if (connection->state == MS_READY) {
        if (reading.code) {
            connection->farewell->size = reading.claim;
            ms_connection_note(connection, reading.code);
            ms_connection_fail(selector, connection);
        } else if (selector->events.bytes > selector->received_bytes_max) {
            connection->is_paused = 1;
            selector->is_paused = 1;
            ms_watch(selector, connection);
        }
        ms_note_unread(selector, connection);
    }
    pthread_mutex_unlock(&selector->lock);
}

/* ---- connecting, by the loop, under the lock ---- */

static socklen_t ms_address_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* 0, or the errno of what went wrong with this address. */
static int ms_begin_connect(
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

/* The peer hears of it also while a forked child holds the socket. */
static void ms_close_socket(ms_connection *connection)
{
    if (connection->transport.end)
        connection->transport.end(&connection->transport);
    memset(&connection->transport, 0, sizeof connection->transport);
    if (connection->fd >= 0) {
        shutdown(connection->fd, SHUT_RDWR);
        close(connection->fd);
    }
    connection->fd = -1;
}

void ms_try_next(ms_selector *selector, ms_connection *connection, int code)
{
    ms_connection_unwatch(selector, connection);
    ms_close_socket(connection);
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

static int ms_is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
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
static void ms_forgo_pacing(int fd)
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

/* Frames may be sent and received from now on. */
static void ms_become_ready(ms_selector *selector, ms_connection *connection, ms_event *event)
{
    connection->state = MS_READY;
    connection->farewell->code_count = 0;
    ms_watch(selector, connection);
    ms_events_add(&selector->events, event);
    ms_announce(selector);
    ms_note_unread(selector, connection);
}

/* One step of the handshake, after which the connection may be ready. */
static void ms_shake_hands(ms_selector *selector, ms_connection *connection)
{
    ms_client_transport *transport = &connection->transport;
    ms_event *event = NULL;
    int step = transport->shake_hands ? transport->shake_hands(transport) : MS_HANDSHAKE_DONE;
    if (step == MS_HANDSHAKE_DONE && !(event = ms_event_new(MS_CONNECTED, connection->id, 0)))
        step = -ENOMEM;
    if (step < 0) {
        ms_try_next(selector, connection, -step);
    } else if (step == MS_HANDSHAKE_DONE) {
        ms_become_ready(selector, connection, event);
    } else if (step != connection->handshake) {
        connection->handshake = step;
        ms_watch(selector, connection);
    }
}

/* The socket has come to a decision. */
static void ms_end_connect(ms_selector *selector, ms_connection *connection)
{
    int code = 0;
    socklen_t size = sizeof code;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    if (!code)
        code = selector->transports->open(
            selector->transports, &connection->transport, connection->fd);
    if (code) {
        ms_try_next(selector, connection, code);
        return;
    }
    ms_forgo_pacing(connection->fd);
    connection->state = MS_HANDSHAKING;
    connection->handshake = MS_HANDSHAKE_WRITES; /* which epoll looks for already */
    ms_shake_hands(selector, connection);
}

void ms_advance(ms_selector *selector, ms_connection *connection)
{
    if (connection->state == MS_CONNECTING)
        ms_end_connect(selector, connection);
    else if (connection->state == MS_HANDSHAKING)
        ms_shake_hands(selector, connection);
}

void ms_connection_free(ms_selector *selector, ms_connection *connection)
{
    while (connection->out_first) {
        ms_outgoing *out = connection->out_first;
        connection->out_first = out->next;
        ms_outgoing_done(selector, out);
    }
    ms_close_socket(connection);
    ms_block_release(selector->pool, connection->block);
    free(connection->farewell);
    free(connection->addresses);
    free(connection);
}
