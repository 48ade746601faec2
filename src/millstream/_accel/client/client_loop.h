/* The loop of a selector: a thread that sleeps in epoll and never needs the GIL. */

#ifndef MILLSTREAM_CLIENT_LOOP_H
#define MILLSTREAM_CLIENT_LOOP_H

#include "client/client_socket_io.h"
#include "client/precise_sleep.h"

#define MS_READY_MAX 64

/* ---- making and ending ---- */

static inline void ms_selector_free(ms_selector *selector);

/* NULL without memory or descriptors; errno tells. */
static inline ms_selector *ms_selector_new(int64_t frame_bytes_max, int64_t received_bytes_max)
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

/* When the loop has ended: every connection, order and event; what has views comes to `spent`. A
   thread that is in `sendmsg` at this moment is waited for: its connection is still in use. */
static inline void ms_selector_clear(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    while (selector->events.first) {
        ms_event *event = selector->events.first;
        selector->events.first = event->next;
        ms_event_free(selector, event);
    }
    ms_events_reset(&selector->events);
    while (selector->orders) {
        ms_order *order = selector->orders;
        selector->orders = order->next;
        free(order);
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

static inline void ms_close_all(ms_selector *selector)
{
    if (selector->epoll_fd >= 0)
        close(selector->epoll_fd);
    if (selector->loop_fd >= 0)
        close(selector->loop_fd);
    if (selector->event_fd >= 0)
        close(selector->event_fd);
}

static inline void ms_selector_free(ms_selector *selector)
{
    ms_selector_clear(selector);
    ms_close_all(selector);
    pthread_mutex_destroy(&selector->lock);
    pthread_cond_destroy(&selector->written);
    free(selector->scratch);
    free(selector);
}

/* ---- periodic requests, under the lock ---- */

static inline void ms_order_cancel(ms_selector *selector, int64_t id)
{
    for (ms_order **at = &selector->orders; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            ms_order *order = *at;
            *at = order->next;
            free(order);
            return;
        }
    }
}

/* Send it once. Without memory it is left out, as if the network had lost it. */
static inline void ms_order_send(ms_selector *selector, ms_order *order, int64_t now_ms)
{
    uint8_t *frame;
    ms_connection *connection = ms_connection_find(selector, order->connection_id);
    if (!connection || connection->state != MS_OPEN) {
        ms_order_cancel(selector, order->id);
        return;
    }
    ms_event *event = ms_event_new(MS_REPEATED, order->connection_id, 0);
    ms_outgoing *out = ms_outgoing_copy(order->size, &frame);
    if (!event || !out) {
        free(event);
        free(out);
        return;
    }
    memcpy(frame, order->frame, (size_t)order->size);
    for (int i = 0; i < 4; i++)
        frame[MS_CORRELATION_ID_AT + i] = (uint8_t)((uint64_t)order->correlation_id >> (24 - 8 * i));
    event->order_id = order->id;
    event->correlation_id = order->correlation_id++;
    event->sent_ms = now_ms;
    ms_events_add(&selector->events, event);
    ms_queue(connection, out);
    ms_flush(selector, connection);
    /* Only now: whom it wakes may take this processor, and the frame would wait for it. */
    ms_announce(selector);
}

/* Orders that are due. What was missed is not made up for: the next is a full interval away. */
static inline void ms_orders_run(ms_selector *selector, int64_t now_ms)
{
    ms_order *order = selector->orders;
    while (order && order->next_ms > now_ms && order->until_ms > now_ms)
        order = order->next;
    while (order) {
        int64_t id = order->id;
        if (order->until_ms <= now_ms) {
            ms_order_cancel(selector, id);
        } else {
            int64_t missed = (now_ms - order->next_ms) / order->every_ms;
            order->next_ms += (missed + 1) * order->every_ms;
            ms_order_send(selector, order, now_ms);
        }
        /* Sending lets go of the lock, so the list may be another one: from the beginning. */
        order = selector->orders;
        while (order && order->next_ms > now_ms && order->until_ms > now_ms)
            order = order->next;
    }
}

static inline int64_t ms_orders_next_ms(const ms_selector *selector)
{
    int64_t next_ms = MS_NEVER;
    for (const ms_order *order = selector->orders; order; order = order->next) {
        if (order->next_ms < next_ms)
            next_ms = order->next_ms;
        if (order->until_ms < next_ms)
            next_ms = order->until_ms;
    }
    return next_ms;
}

/* ---- the loop ---- */

/* Under the lock: the dead are closed, unless a thread is still sending; the new ones begin. */
static inline void ms_attend(ms_selector *selector)
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

/* Under the lock: send what user threads have left to the loop. */
static inline void ms_flush_all(ms_selector *selector)
{
    for (int bucket = 0; bucket < MS_BUCKETS; bucket++) {
        ms_connection *connection = selector->table[bucket];
        while (connection) {
            int64_t id = connection->id;
            if (connection->state == MS_OPEN && connection->out_first
                && !connection->wants_to_write && !connection->is_writing) {
                ms_flush(selector, connection);
                /* The lock was let go: the chain may have changed, this one may be dead. */
                connection = ms_connection_find(selector, id);
                if (!connection)
                    connection = selector->table[bucket];
                else
                    connection = connection->next;
                continue;
            }
            connection = connection->next;
        }
    }
}

static inline void ms_ready(ms_selector *selector, int64_t serial, uint32_t events)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_of(selector, serial);
    int state = connection ? connection->state : MS_DEAD;
    if (state == MS_CONNECTING)
        ms_end_connect(selector, connection);
    else if (state == MS_OPEN && events & EPOLLOUT)
        ms_flush(selector, connection);
    pthread_mutex_unlock(&selector->lock);
    if (state == MS_OPEN && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        ms_receive(selector, connection);
}

/* Under the lock, which is let go: what the driver has to do; when it wants to be called again. */
static inline int64_t ms_drive_once(ms_selector *selector)
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
static inline int64_t ms_prepare(ms_selector *selector)
{
    int64_t now_ms = ms_monotonic_ms();
    ms_orders_run(selector, now_ms);
    if (selector->is_dirty) {
        ms_attend(selector);
        ms_flush_all(selector);
    }
    int64_t driver_ms = ms_drive_once(selector);
    int64_t next_ms = ms_orders_next_ms(selector);
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

/* Runs until it is told to stop. Called without the GIL, and never takes it. */
static inline void ms_run(ms_selector *selector)
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

#endif
