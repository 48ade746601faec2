/* What a selector consists of: connections, frames on their way out, events, periodic requests.

   One lock, `ms_selector.lock`, guards all of it but what is marked as the loop's own. It is never
   held during a system call that moves data, nor while anything of Python runs. The lock of the
   frame pool may be taken under it; no other. Only the loop closes sockets and frees connections,
   so a connection that another thread found under the lock stays valid as long as it is marked as
   writing. After a fork the child touches none of this.

   epoll knows a connection by its serial, never by its address: an event that comes late finds
   nothing. A descriptor leaves epoll before it is closed, for a forked child may still hold the
   socket, and then closing alone would not take it out. */

#ifndef MILLSTREAM_CLIENT_SOCKETS_H
#define MILLSTREAM_CLIENT_SOCKETS_H

#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clocks.h"
#include "client/frame_pool.h"

#define MS_BUCKETS 64
#define MS_CODES_MAX 8
#define MS_SCRATCH_SIZE (64 * 1024)
#define MS_CORRELATION_ID_AT 8
#define MS_NEVER INT64_MAX
#define MS_ANNOUNCE_AFTER_MS 10
#define MS_DRIVER_IN_FLIGHT_MAX 16 /* requests that a driver may have on one connection */

/* Why a connection ended, where it is no errno. */
enum ms_end { MS_END_CLOSED_BY_PEER = -1, MS_END_FRAME_SIZE = -2 };
enum ms_event_kind {
    MS_CONNECTED, MS_RECEIVED, MS_DISCONNECTED, MS_REPEATED, MS_DISPATCHED
};
enum ms_connection_state { MS_RESOLVING, MS_CONNECTING, MS_OPEN, MS_DEAD };

/* A frame to be sent: either a copy behind `vectors`, or views of Python objects, or parts of what
   a driver keeps; the last two go back to a Python thread when they are no longer needed. */
typedef struct ms_outgoing {
    struct ms_outgoing *next;
    int64_t bytes;
    int vector; /* the first that is not wholly sent */
    int vector_count;
    int view_count;
    Py_buffer *views;
    void *kept;
    int kept_count;
    struct iovec vectors[];
} ms_outgoing;

/* One thing that happened. A small frame follows the struct, a large one has a block. */
typedef struct ms_event {
    struct ms_event *next;
    int kind;
    int64_t connection_id;
    int64_t order_id;
    int64_t correlation_id;
    int64_t sent_ms;
    int64_t size; /* of the frame, or what the peer said it was */
    ms_block *block;
    int codes[MS_CODES_MAX]; /* why it ended: of each address that was tried */
    int code_count;
    uint8_t data[];
} ms_event;

typedef struct {
    ms_event *first;
    ms_event **end; /* where the next one is linked */
    int64_t bytes;
} ms_events;

typedef struct ms_connection {
    struct ms_connection *next;
    struct ms_connection *next_by_serial;
    int64_t id;
    int64_t serial; /* tells two connections of one id apart; above 0 */
    int fd;
    int state;
    int is_writing; /* a thread sends, without the lock */
    int wants_to_write;
    int is_paused;
    int is_suspended; /* the driver must not send here */
    int driver_in_flight;
    uint8_t driver_versions[MS_DRIVER_IN_FLIGHT_MAX]; /* by correlation id */
    ms_outgoing *out_first;
    ms_outgoing **out_end;
    struct sockaddr_storage *addresses;
    int address_count;
    int address_next;
    ms_event *farewell; /* made beforehand, so that an end is always heard of */
    /* The loop's own: the frame that is coming in. */
    uint8_t size_bytes[4];
    int size_have;
    int64_t frame_size;
    int64_t frame_have;
    ms_block *block;
    int low_water; /* bytes that must be there before epoll tells of them */
} ms_connection;

typedef struct ms_order {
    struct ms_order *next;
    int64_t id;
    int64_t connection_id;
    int64_t next_ms;
    int64_t every_ms;
    int64_t until_ms;
    int64_t correlation_id;
    int64_t size;
    uint8_t frame[];
} ms_order;

/* Work of others that the loop does on time. It is called without the selector's lock. */
typedef struct ms_driver {
    /* Do what is due; when to be called again at the latest. */
    int64_t (*run)(struct ms_driver *driver, int64_t now_ms);
    /* The answer to one of its requests has come, and goes to poll() next. */
    void (*answered)(
        struct ms_driver *driver, ms_connection *connection, const uint8_t *frame, int64_t size);
    /* A frame needs no longer what the driver keeps for it; by a Python thread, with the GIL. */
    void (*release)(struct ms_driver *driver, void *kept, int count);
    int64_t first_id; /* its requests' correlation ids: from this one */
    int64_t end_id;   /* to below this one */
} ms_driver;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t written; /* a thread has left `sendmsg`, and the selector is stopping */
    ms_pool *pool;
    int epoll_fd;
    int loop_fd;  /* ends the loop's sleep */
    int event_fd; /* ends the sleep of poll() */
    int64_t frame_bytes_max;
    int64_t received_bytes_max;
    int64_t serials;
    ms_connection *table[MS_BUCKETS];
    ms_connection *by_serial[MS_BUCKETS];
    ms_connection *dead; /* to be closed by the loop */
    ms_order *orders;
    ms_events events;
    ms_outgoing *spent; /* whose views a Python thread must release */
    int is_asleep;
    int is_loop_woken;
    int is_waiting;
    int is_woken;
    int is_paused; /* too much is received and not fetched by poll() */
    int is_dirty;  /* a connection to begin, or one to look at again */
    int is_driven; /* the driver has something to do */
    int64_t announce_ms; /* by when poll() must hear of events that can wait a little */
    ms_driver *driver;
    int is_stopping;
    uint8_t *scratch; /* the loop's own */
} ms_selector;

static inline void ms_notify_fd(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* A full counter has woken the reader already. */
}

static inline void ms_clear_fd(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
}

/* Under the lock: let the loop look around. */
static inline void ms_wake_loop(ms_selector *selector)
{
    if (selector->is_asleep && !selector->is_loop_woken) {
        selector->is_loop_woken = 1;
        ms_notify_fd(selector->loop_fd);
    }
}

/* ---- events ---- */

static inline void ms_events_reset(ms_events *events)
{
    events->first = NULL;
    events->end = &events->first;
    events->bytes = 0;
}

static inline void ms_events_add(ms_events *events, ms_event *event)
{
    event->next = NULL;
    *events->end = event;
    events->end = &event->next;
    events->bytes += event->size;
}

static inline ms_event *ms_event_new(int kind, int64_t connection_id, int64_t data_size)
{
    ms_event *event = (ms_event *)malloc(sizeof(ms_event) + (size_t)data_size);
    if (event) {
        memset(event, 0, sizeof *event);
        event->kind = kind;
        event->connection_id = connection_id;
    }
    return event;
}

static inline void ms_event_free(ms_selector *selector, ms_event *event)
{
    ms_block_give_back(selector->pool, event->block);
    free(event);
}

/* Under the lock: end the sleep of poll(), if it sleeps. */
static inline void ms_announce(ms_selector *selector)
{
    if (selector->is_waiting) {
        selector->is_waiting = 0;
        ms_notify_fd(selector->event_fd);
    }
}

/* Under the lock: have poll() hear of the events soon, but not for their own sake. */
static inline void ms_announce_later(ms_selector *selector, int64_t now_ms)
{
    if (selector->announce_ms == MS_NEVER)
        selector->announce_ms = now_ms + MS_ANNOUNCE_AFTER_MS;
}

/* Under the lock: forget what came from a connection that its user has closed, but not what the
   driver took and sent there: its owner must learn that it is under way no more. */
static inline void ms_events_forget(ms_selector *selector, int64_t connection_id)
{
    ms_events kept;
    ms_event *event = selector->events.first;
    ms_events_reset(&kept);
    while (event) {
        ms_event *next = event->next;
        if (event->connection_id == connection_id && event->kind != MS_DISPATCHED)
            ms_event_free(selector, event);
        else
            ms_events_add(&kept, event);
        event = next;
    }
    selector->events = kept;
    if (!kept.first)
        selector->events.end = &selector->events.first;
}

/* ---- frames on their way out ---- */

static inline ms_outgoing *ms_outgoing_new(int vector_count, int view_count, int64_t copied)
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

/* A frame that is a copy: `size` bytes to be filled in by the caller. */
static inline ms_outgoing *ms_outgoing_copy(int64_t size, uint8_t **data)
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

/* Under the lock: sent, or never to be. */
static inline void ms_outgoing_done(ms_selector *selector, ms_outgoing *out)
{
    if (!out->view_count && !out->kept_count) {
        free(out);
        return;
    }
    out->next = selector->spent;
    selector->spent = out;
}

static inline void ms_queue(ms_connection *connection, ms_outgoing *out)
{
    out->next = NULL;
    *connection->out_end = out;
    connection->out_end = &out->next;
}

/* ---- connections ---- */

static inline ms_connection *ms_connection_find(ms_selector *selector, int64_t id)
{
    ms_connection *connection = selector->table[(uint64_t)id % MS_BUCKETS];
    while (connection && connection->id != id)
        connection = connection->next;
    return connection;
}

/* The one that epoll speaks of; NULL if it has ended meanwhile. */
static inline ms_connection *ms_connection_of(ms_selector *selector, int64_t serial)
{
    ms_connection *connection = selector->by_serial[(uint64_t)serial % MS_BUCKETS];
    while (connection && connection->serial != serial)
        connection = connection->next_by_serial;
    return connection;
}

/* Under the lock; there is none of this id. */
static inline ms_connection *ms_connection_new(ms_selector *selector, int64_t id)
{
    ms_connection *connection = (ms_connection *)calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->farewell = ms_event_new(MS_DISCONNECTED, id, 0);
    if (!connection->farewell) {
        free(connection);
        return NULL;
    }
    connection->id = id;
    connection->serial = ++selector->serials;
    connection->fd = -1;
    connection->state = MS_RESOLVING;
    connection->low_water = 1;
    connection->out_end = &connection->out_first;
    connection->next = selector->table[(uint64_t)id % MS_BUCKETS];
    selector->table[(uint64_t)id % MS_BUCKETS] = connection;
    ms_connection **same = &selector->by_serial[(uint64_t)connection->serial % MS_BUCKETS];
    connection->next_by_serial = *same;
    *same = connection;
    return connection;
}

/* Under the lock: epoll looks at the socket no longer. It is not closed: a thread may be sending. */
static inline void ms_connection_unwatch(ms_selector *selector, const ms_connection *connection)
{
    if (connection->fd >= 0)
        epoll_ctl(selector->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
}

/* Under the lock: the periodic requests of a connection end with it. */
static inline void ms_orders_cancel(ms_selector *selector, int64_t connection_id)
{
    ms_order **at = &selector->orders;
    while (*at) {
        ms_order *order = *at;
        if (order->connection_id != connection_id) {
            at = &order->next;
            continue;
        }
        *at = order->next;
        free(order);
    }
}

/* Under the lock: out of the table at once, so that its id is free; the loop does the rest. */
static inline void ms_connection_bury(ms_selector *selector, ms_connection *connection)
{
    ms_orders_cancel(selector, connection->id);
    ms_connection **at = &selector->table[(uint64_t)connection->id % MS_BUCKETS];
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    at = &selector->by_serial[(uint64_t)connection->serial % MS_BUCKETS];
    while (*at != connection)
        at = &(*at)->next_by_serial;
    *at = connection->next_by_serial;
    ms_connection_unwatch(selector, connection);
    connection->state = MS_DEAD;
    connection->next = selector->dead;
    selector->dead = connection;
    selector->is_dirty = 1;
    ms_wake_loop(selector);
}

/* Under the lock: one more reason for the connection's end. */
static inline void ms_connection_note(ms_connection *connection, int code)
{
    ms_event *farewell = connection->farewell;
    if (farewell->code_count < MS_CODES_MAX)
        farewell->codes[farewell->code_count++] = code;
}

/* Under the lock: it is over, and its user shall hear why. */
static inline void ms_connection_fail(ms_selector *selector, ms_connection *connection)
{
    ms_events_add(&selector->events, connection->farewell);
    connection->farewell = NULL;
    ms_announce(selector);
    ms_connection_bury(selector, connection);
}

/* The peer hears of it also while a forked child holds the socket. */
static inline void ms_close_socket(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

/* By the loop or when there is none, under the lock: gives up everything the connection has. */
static inline void ms_connection_free(ms_selector *selector, ms_connection *connection)
{
    while (connection->out_first) {
        ms_outgoing *out = connection->out_first;
        connection->out_first = out->next;
        ms_outgoing_done(selector, out);
    }
    if (connection->fd >= 0)
        ms_close_socket(connection->fd);
    ms_block_give_back(selector->pool, connection->block);
    free(connection->farewell);
    free(connection->addresses);
    free(connection);
}

#endif
