/* What Python threads ask of a selector: wait for events, connect, send, repeat, stop.

   Each call takes the lock for a moment. The one that waits is called without the GIL. */

#ifndef MILLSTREAM_CLIENT_CALLS_H
#define MILLSTREAM_CLIENT_CALLS_H

#include <arpa/inet.h>
#include <poll.h>

#include "client/client_loop.h"

/* An address from its numeric text; 0 if it is none that a socket connects to. */
static inline int ms_fill_address(
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

/* Sleep until there are events, wake() was called or the time is over: 1. For a signal: 0. */
static inline int ms_await_events(ms_selector *selector, int64_t deadline_ms)
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

/* The events so far, for the caller to free, and the frames whose views it must release. */
static inline ms_event *ms_take_events(ms_selector *selector, ms_outgoing **spent)
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

static inline void ms_wake(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_woken = 1;
    ms_announce(selector);
    pthread_mutex_unlock(&selector->lock);
}

/* Have the driver called soon. */
static inline void ms_drive(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_driven = 1;
    ms_wake_loop(selector);
    pthread_mutex_unlock(&selector->lock);
}

/* There is one for the life of a selector; its owner outlives the loop. 0 if it has one already. */
static inline int ms_set_driver(ms_selector *selector, ms_driver *driver)
{
    pthread_mutex_lock(&selector->lock);
    int is_first = !selector->driver;
    if (is_first)
        __atomic_store_n(&selector->driver, driver, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&selector->lock);
    return is_first;
}

/* Queue a frame, and send it here and now if `is_small`: it is not worth another thread's waking. */
static inline void ms_send(
    ms_selector *selector, int64_t connection_id, ms_outgoing *out, int is_small)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    if (!connection || connection->state != MS_OPEN || selector->is_stopping) {
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

static inline void ms_close(ms_selector *selector, int64_t connection_id)
{
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    ms_events_forget(selector, connection_id);
    ms_orders_cancel(selector, connection_id);
    if (connection)
        ms_connection_bury(selector, connection);
    pthread_mutex_unlock(&selector->lock);
}

/* Make a connection known; its serial, 0 without memory, or -1 if there is one of this id. */
static inline int64_t ms_open(ms_selector *selector, int64_t connection_id)
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

/* Where the connection of this id and serial is to go; if it is still wanted, the addresses are
   its own from now on. Without any it has failed. */
static inline void ms_give_addresses(
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

static inline void ms_repeat(ms_selector *selector, ms_order *order)
{
    pthread_mutex_lock(&selector->lock);
    ms_order_cancel(selector, order->id);
    order->next = selector->orders;
    selector->orders = order;
    ms_wake_loop(selector);
    pthread_mutex_unlock(&selector->lock);
}

static inline void ms_cancel(ms_selector *selector, int64_t order_id)
{
    pthread_mutex_lock(&selector->lock);
    ms_order_cancel(selector, order_id);
    pthread_mutex_unlock(&selector->lock);
}

static inline void ms_stop(ms_selector *selector)
{
    pthread_mutex_lock(&selector->lock);
    selector->is_stopping = 1;
    ms_wake_loop(selector);
    ms_announce(selector);
    pthread_mutex_unlock(&selector->lock);
}

#endif
