/* See client_sockets.h: events, the table of connections, periodic requests, the loop, and what other
   threads ask of it. */

#include "client/client_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client_connection.h"
#include "client/precise_sleep.h"
#include "clocks.h"
#include "wire.h"

#define MS_READY_MAX 64

static void ms_notify_fd(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* A full counter has woken the reader already. */
}

static void ms_clear_fd(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
}

void ms_wake_loop(ms_selector *selector)
{
    if (selector->is_asleep && !selector->is_loop_woken) {
        selector->is_loop_woken = 1;
        ms_notify_fd(selector->loop_fd);
    }
}

/* ---- events ---- */

void ms_events_reset(ms_events *events)
{
    events->first = NULL;
    events->end = &events->first;
    events->bytes = 0;
}

void ms_events_add(ms_events *events, ms_event *event)
{
    event->next = NULL;
    *events->end = event;
    events->end = &event->next;
    events->bytes += event->size;
}

ms_event *ms_event_new(int kind, int64_t connection_id, int64_t data_size)
{
    ms_event *event = (ms_event *)malloc(sizeof(ms_event) + (size_t)data_size);
    if (event) {
        memset(event, 0, sizeof *event);
        event->kind = kind;
        event->connection_id = connection_id;
    }
    return event;
}

void ms_event_free(ms_selector *selector, ms_event *event)
{
    ms_block_release(selector->pool, event->block);
    free(event);
}

void ms_announce(ms_selector *selector)
{
    if (selector->is_waiting) {
        selector->is_waiting = 0;
        ms_notify_fd(selector->event_fd);
    }
}

void ms_announce_later(ms_selector *selector, int64_t now_ms)
{
    if (selector->announce_ms == MS_NEVER)
        selector->announce_ms = now_ms + MS_ANNOUNCE_AFTER_MS;
}

/* Under the lock: forget what came from a connection that its user has closed, but not what the
   driver took and sent there: its owner must learn that it is under way no more. */
static void ms_events_forget(ms_selector *selector, int64_t connection_id)
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

/* ---- periodic requests, under the lock ---- */

/* Under the lock: the periodic requests of a connection end with it. */
static void ms_periodics_cancel(ms_selector *selector, int64_t connection_id)
{
    ms_periodic **at = &selector->periodics;
    while (*at) {
        ms_periodic *periodic = *at;
        if (periodic->connection_id != connection_id) {
            at = &periodic->next;
            continue;
        }
        *at = periodic->next;
        free(periodic);
    }
}

static void ms_periodic_cancel(ms_selector *selector, int64_t id)
{
    for (ms_periodic **at = &selector->periodics; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            ms_periodic *periodic = *at;
            *at = periodic->next;
            free(periodic);
            return;
        }
    }
}

/* Send it once. Without memory it is left out, as if the network had lost it. */
static void ms_periodic_send(ms_selector *selector, ms_periodic *periodic, int64_t now_ms)
{
    uint8_t *frame;
    ms_connection *connection = ms_connection_find(selector, periodic->connection_id);
    if (!connection || connection->state != MS_READY) {
        ms_periodic_cancel(selector, periodic->id);
        return;
    }
    ms_event *event = ms_event_new(MS_REPEATED, periodic->connection_id, 0);
    ms_outgoing *out = ms_outgoing_copy(periodic->size, &frame);
    if (!event || !out) {
        free(event);
        free(out);
        return;
    }
    memcpy(frame, periodic->frame, (size_t)periodic->size);
    ms_write_big_endian(frame + MS_CORRELATION_ID_AT, periodic->correlation_id, 4);
    event->periodic_id = periodic->id;
    event->correlation_id = periodic->correlation_id++;
    event->sent_ms = now_ms;
    ms_events_add(&selector->events, event);
    ms_queue(connection, out);
    ms_flush(selector, connection);
    /* Only now: whom it wakes may take this processor, and the frame would wait for it. */
    ms_announce(selector);
}

/* Orders that are due. What was missed is not made up for: the next is a full interval away. */
static void ms_periodics_run(ms_selector *selector, int64_t now_ms)
{
    ms_periodic *periodic = selector->periodics;
    while (periodic && periodic->next_ms > now_ms && periodic->until_ms > now_ms)
        periodic = periodic->next;
    while (periodic) {
        int64_t id = periodic->id;
        if (periodic->until_ms <= now_ms) {
            ms_periodic_cancel(selector, id);
        } else {
            int64_t missed = (now_ms - periodic->next_ms) / periodic->every_ms;
            periodic->next_ms += (missed + 1) * periodic->every_ms;
            ms_periodic_send(selector, periodic, now_ms);
        }
        /* Sending lets go of the lock, so the list may be another one: from the beginning. */
        periodic = selector->periodics;
        while (periodic && periodic->next_ms > now_ms && periodic->until_ms > now_ms)
            periodic = periodic->next;
    }
}

static int64_t ms_periodics_next_ms(const ms_selector *selector)
{
    int64_t next_ms = MS_NEVER;
    for (const ms_periodic *periodic = selector->periodics; periodic; periodic = periodic->next) {
        if (periodic->next_ms < next_ms)
            next_ms = periodic->next_ms;
        if (periodic->until_ms < next_ms)
            next_ms = periodic->until_ms;
    }
    return next_ms;
}

/* ---- connections ---- */

ms_connection *ms_connection_find(ms_selector *selector, int64_t id)
{
    ms_connection *connection = selector->table[(uint64_t)id % MS_BUCKETS];
    while (connection && connection->id != id)
        connection = connection->next;
    return connection;
}

/* The one that epoll speaks of; NULL if it has ended meanwhile. */
static ms_connection *ms_connection_of(ms_selector *selector, int64_t serial)
{
    ms_connection *connection = selector->by_serial[(uint64_t)serial % MS_BUCKETS];
    while (connection && connection->serial != serial)
        connection = connection->next_by_serial;
    return connection;
}

/* Under the lock; there is none of this id. */
static ms_connection *ms_connection_new(ms_selector *selector, int64_t id)
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

void ms_connection_unwatch(ms_selector *selector, const ms_connection *connection)
{
    if (connection->fd >= 0)
        epoll_ctl(selector->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
}

/* Under the lock: out of the table at once, so that its id is free; the loop does the rest. */
static void ms_connection_bury(ms_selector *selector, ms_connection *connection)
{
    ms_periodics_cancel(selector, connection->id);
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

void ms_connection_note(ms_connection *connection, int code)
{
    ms_event *farewell = connection->farewell;
    if (farewell->code_count < MS_CODES_MAX)
        farewell->codes[farewell->code_count++] = code;
}

void ms_connection_fail(ms_selector *selector, ms_connection *connection)
{
    ms_events_add(&selector->events, connection->farewell);
    connection->farewell = NULL;
    ms_announce(selector);
    ms_connection_bury(selector, connection);
}

/* ---- making and ending ---- */

void ms_selector_clear(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    while (selector->events.first) {
        ms_event *event = selector->events.first;
        selector->events.first = event->next;
        ms_event_free(selector, event);
    }
    ms_events_reset(&selector->events);
    while (selector->periodics) {
        ms_periodic *periodic = selector->periodics;
        selector->periodics = periodic->next;
        free(periodic);
    }
    for (int bucket = 0; bucket < MS_BUCKETS; bucket++)
        while (selector->table[bucket])
            ms_connection_bury(selector, selector->table[bucket]);
    while (selector->dead) {
        ms_connection *connection = selector->dead;
        while (connection->is_writing)
            pthread_cond_wait(&selector->written, &selector->lock);
        selector->dead = connection->next;
        ms_connection_free(selector, connection);
    }
    pthread_mutex_unlock(&selector->lock);
}

void ms_close_all(ms_selector *selector)
{
    if (selector->epoll_fd >= 0)
        close(selector->epoll_fd);
    if (selector->loop_fd >= 0)
        close(selector->loop_fd);
    if (selector->event_fd >= 0)
        close(selector->event_fd);
}

void ms_selector_free(ms_selector *selector)
{
    ms_selector_clear(selector);
    ms_close_all(selector);
    pthread_mutex_destroy(&selector->lock);
    pthread_cond_destroy(&selector->written);
    free(selector->scratch);
    free(selector);
}

ms_selector *ms_selector_new(
    int64_t frame_bytes_max, int64_t received_bytes_max, const ms_transports *transports)
{
    struct epoll_event wanted;
    ms_selector *selector = (ms_selector *)calloc(1, sizeof *selector);
    if (!selector)
        return NULL;
    pthread_mutex_init(&selector->lock, NULL);
    pthread_cond_init(&selector->written, NULL);
    ms_events_reset(&selector->events);
    selector->announce_ms = MS_NEVER;
    selector->frame_bytes_max = frame_bytes_max;
    selector->received_bytes_max = received_bytes_max;
    selector->pool = &ms_frames;
    selector->transports = transports;
    selector->scratch = (uint8_t *)malloc(MS_SCRATCH_SIZE);
    selector->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    selector->loop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    selector->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    memset(&wanted, 0, sizeof wanted);
    wanted.events = EPOLLIN;
    if (!selector->scratch || selector->epoll_fd < 0 || selector->loop_fd < 0
        || selector->event_fd < 0
        || epoll_ctl(selector->epoll_fd, EPOLL_CTL_ADD, selector->loop_fd, &wanted) < 0) {
        int code = errno ? errno : ENOMEM;
        ms_selector_free(selector);
        errno = code;
        return NULL;
    }
    return selector;
}

/* ---- the loop ---- */

/* Under the lock: the dead are closed, unless a thread is still sending; the new ones begin. */
static void ms_attend(ms_selector *selector)
{
    ms_connection **at = &selector->dead;
    selector->is_dirty = 0;
    while (*at) {
        ms_connection *connection = *at;
        if (connection->is_writing) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        ms_connection_free(selector, connection);
    }
    for (int bucket = 0; bucket < MS_BUCKETS; bucket++) {
        ms_connection *connection = selector->table[bucket];
        while (connection) {
            ms_connection *next = connection->next;
            if (connection->is_paused && !selector->is_paused) {
                connection->is_paused = 0;
                ms_watch(selector, connection);
            }
            if (connection->state == MS_RESOLVING && connection->addresses)
                ms_try_next(selector, connection, 0);
            connection = next;
        }
    }
}

/* Under the lock, which is let go: receive what is in a transport, and send what other threads have
   left to the loop. 0 if there was nothing to do. */
static int ms_serve(ms_selector *selector, ms_connection *connection)
{
    int has_unread = connection->has_unread && !connection->is_paused;
    if (has_unread) {
        pthread_mutex_unlock(&selector->lock);
        ms_receive(selector, connection);
        pthread_mutex_lock(&selector->lock);
    }
    int has_unsent = connection->state == MS_READY && connection->out_first
        && !connection->wants_to_write && !connection->is_writing;
    if (has_unsent)
        ms_flush(selector, connection);
    return has_unread || has_unsent;
}

static void ms_serve_all(ms_selector *selector)
{
    for (int bucket = 0; bucket < MS_BUCKETS; bucket++) {
        ms_connection *connection = selector->table[bucket];
        while (connection) {
            int64_t id = connection->id;
            if (ms_serve(selector, connection)) {
                /* The lock was let go: the chain may have changed, this one may be dead. */
                connection = ms_connection_find(selector, id);
                if (!connection) {
                    connection = selector->table[bucket];
                    continue;
                }
            }
            connection = connection->next;
        }
    }
}

static void ms_ready(ms_selector *selector, int64_t serial, uint32_t events)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_of(selector, serial);
    int is_ready = connection && connection->state == MS_READY;
    if (is_ready && events & EPOLLOUT)
        ms_flush(selector, connection);
    else if (connection && !is_ready)
        ms_advance(selector, connection);
    pthread_mutex_unlock(&selector->lock);
    if (is_ready && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        ms_receive(selector, connection);
}

/* Under the lock, which is let go: what the driver has to do; when it wants to be called again. */
static int64_t ms_drive_once(ms_selector *selector)
{
    ms_driver *driver = selector->driver;
    if (!driver)
        return MS_NEVER;
    selector->is_driven = 0;
    pthread_mutex_unlock(&selector->lock);
    int64_t next_ms = driver->run(driver, ms_monotonic_ms());
    pthread_mutex_lock(&selector->lock);
    return next_ms;
}

/* Under the lock: do what is due, and say until when to sleep; 0 for not at all. */
static int64_t ms_prepare(ms_selector *selector)
{
    int64_t now_ms = ms_monotonic_ms();
    ms_periodics_run(selector, now_ms);
    if (selector->is_dirty) {
        ms_attend(selector);
        ms_serve_all(selector);
    }
    int64_t driver_ms = ms_drive_once(selector);
    int64_t next_ms = ms_periodics_next_ms(selector);
    if (driver_ms < next_ms)
        next_ms = driver_ms;
    now_ms = ms_monotonic_ms();
    if (selector->announce_ms <= now_ms) {
        selector->announce_ms = MS_NEVER;
        ms_announce(selector);
    } else if (selector->announce_ms < next_ms) {
        next_ms = selector->announce_ms;
    }
    int has_work = selector->is_dirty || selector->is_driven || selector->is_stopping;
    return has_work || next_ms <= now_ms ? 0 : next_ms;
}

void ms_run(ms_selector *selector)
{
    struct epoll_event ready[MS_READY_MAX];
    ms_ask_for_short_slices();
    pthread_mutex_lock(&selector->lock);
    while (!selector->is_stopping) {
        int64_t until_ms = ms_prepare(selector);
        selector->is_asleep = 1;
        pthread_mutex_unlock(&selector->lock);
        int count = ms_sleep_until(selector->epoll_fd, ready, MS_READY_MAX, until_ms);
        pthread_mutex_lock(&selector->lock);
        selector->is_asleep = 0;
        if (selector->is_loop_woken) {
            selector->is_loop_woken = 0;
            ms_clear_fd(selector->loop_fd);
        }
        pthread_mutex_unlock(&selector->lock);
        for (int i = 0; i < count; i++)
            if (ready[i].data.u64)
                ms_ready(selector, (int64_t)ready[i].data.u64, ready[i].events);
        pthread_mutex_lock(&selector->lock);
    }
    pthread_mutex_unlock(&selector->lock);
}

/* ---- what other threads ask ---- */

int ms_fill_address(
    struct sockaddr_storage *out, int family, const char *host, uint16_t port, uint32_t scope)
{
    if (family == AF_INET6) {
        struct sockaddr_in6 *address = (struct sockaddr_in6 *)out;
        address->sin6_family = AF_INET6;
        address->sin6_port = htons(port);
        address->sin6_scope_id = scope;
        return inet_pton(AF_INET6, host, &address->sin6_addr) == 1;
    }
    struct sockaddr_in *address = (struct sockaddr_in *)out;
    address->sin_family = AF_INET;
    address->sin_port = htons(port);
    return family == AF_INET && inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

int ms_await_events(ms_selector *selector, int64_t deadline_ms)
{
    struct pollfd watched;
    watched.fd = selector->event_fd;
    watched.events = POLLIN;
    for (;;) {
        pthread_mutex_lock(&selector->lock);
        int is_ready = selector->events.first || selector->is_woken || selector->is_stopping;
        selector->is_waiting = !is_ready;
        pthread_mutex_unlock(&selector->lock);
        if (is_ready)
            return 1;
        int64_t left_ms = deadline_ms == MS_NEVER ? -1 : deadline_ms - ms_monotonic_ms();
        if (left_ms <= 0 && deadline_ms != MS_NEVER)
            return 1;
        int count = poll(&watched, 1, left_ms > MS_SLEEP_MS_MAX ? MS_SLEEP_MS_MAX : (int)left_ms);
        if (count > 0)
            ms_clear_fd(selector->event_fd);
        if (count < 0)
            return 0;
    }
}

ms_event *ms_take_events(ms_selector *selector, ms_outgoing **spent)
{
    pthread_mutex_lock(&selector->lock);
    ms_event *events = selector->events.first;
    ms_events_reset(&selector->events);
    *spent = selector->spent;
    selector->spent = NULL;
    selector->is_woken = 0;
    selector->announce_ms = MS_NEVER;
    if (selector->is_paused) {
        selector->is_paused = 0;
        selector->is_dirty = 1;
        ms_wake_loop(selector);
    }
    pthread_mutex_unlock(&selector->lock);
    return events;
}

void ms_wake(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_woken = 1;
    ms_announce(selector);
    pthread_mutex_unlock(&selector->lock);
}

void ms_drive(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_driven = 1;
    ms_wake_loop(selector);
    pthread_mutex_unlock(&selector->lock);
}

int ms_set_driver(ms_selector *selector, ms_driver *driver)
{
    pthread_mutex_lock(&selector->lock);
    int is_first = !selector->driver;
    if (is_first)
        __atomic_store_n(&selector->driver, driver, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&selector->lock);
    return is_first;
}

void ms_send(
    ms_selector *selector, int64_t connection_id, ms_outgoing *out, int is_small)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    if (!connection || connection->state != MS_READY || selector->is_stopping) {
        ms_outgoing_done(selector, out);
    } else {
        ms_queue(connection, out);
        if (!connection->wants_to_write && is_small) {
            ms_flush(selector, connection);
        } else if (!connection->wants_to_write) {
            selector->is_dirty = 1;
            ms_wake_loop(selector);
        }
    }
    pthread_mutex_unlock(&selector->lock);
}

void ms_close(ms_selector *selector, int64_t connection_id)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    ms_events_forget(selector, connection_id);
    ms_periodics_cancel(selector, connection_id);
    if (connection)
        ms_connection_bury(selector, connection);
    pthread_mutex_unlock(&selector->lock);
}

int64_t ms_open(ms_selector *selector, int64_t connection_id)
{
    int64_t serial = -1;
    pthread_mutex_lock(&selector->lock);
    if (!ms_connection_find(selector, connection_id)) {
        ms_connection *connection = ms_connection_new(selector, connection_id);
        serial = connection ? connection->serial : 0;
    }
    pthread_mutex_unlock(&selector->lock);
    return serial;
}

void ms_give_addresses(
    ms_selector *selector, int64_t connection_id, int64_t serial,
    struct sockaddr_storage *addresses, int count)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    if (connection && connection->serial == serial && connection->state == MS_RESOLVING
        && !connection->addresses) {
        connection->addresses = addresses;
        connection->address_count = count;
        addresses = NULL;
        selector->is_dirty = 1;
        ms_wake_loop(selector);
    }
    pthread_mutex_unlock(&selector->lock);
    free(addresses);
}

void ms_repeat(ms_selector *selector, ms_periodic *periodic)
{
    pthread_mutex_lock(&selector->lock);
    ms_periodic_cancel(selector, periodic->id);
    periodic->next = selector->periodics;
    selector->periodics = periodic;
    ms_wake_loop(selector);
    pthread_mutex_unlock(&selector->lock);
}

void ms_cancel(ms_selector *selector, int64_t periodic_id)
{
    pthread_mutex_lock(&selector->lock);
    ms_periodic_cancel(selector, periodic_id);
    pthread_mutex_unlock(&selector->lock);
}

void ms_stop(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_stopping = 1;
    ms_wake_loop(selector);
    ms_announce(selector);
    pthread_mutex_unlock(&selector->lock);
}
