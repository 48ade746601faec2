/* A client's selector: connections, events, periodic requests, and a loop that never needs the GIL.

   One lock, `ms_selector.lock`, guards all of it but what is marked as the loop's own. It is never
   held during a system call that moves data, nor while anything of Python runs. The lock of the
   frame pool may be taken under it; no other. Only the loop closes sockets and frees connections,
   so a connection that another thread found under the lock stays valid as long as it is marked as
   writing. After a fork the child touches none of this.

   A connection is resolving, connecting, handshaking, ready, dead. Nothing is sent or taken for a
   frame before it is ready; what a transport exchanges until then is its own affair.

   epoll knows a connection by its serial, never by its address: an event that comes late finds
   nothing. A descriptor leaves epoll before it is closed, for a forked child may still hold the
   socket, and then closing alone would not take it out. */

#ifndef MILLSTREAM_CLIENT_SOCKETS_H
#define MILLSTREAM_CLIENT_SOCKETS_H

#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/client_transport.h"
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
enum ms_connection_state { MS_RESOLVING, MS_CONNECTING, MS_HANDSHAKING, MS_READY, MS_DEAD };

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
    int64_t periodic_id;
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
    ms_client_transport transport; /* from the handshake on */
    int handshake; /* what it waits for: of `enum ms_handshake` */
    int is_writing; /* a thread sends, without the lock */
    int wants_to_write;
    int is_paused;
    int has_unread; /* the transport has bytes that epoll does not tell of */
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

/* A request that is sent again and again, on time: a heartbeat. */
typedef struct ms_periodic {
    struct ms_periodic *next;
    int64_t id;
    int64_t connection_id;
    int64_t next_ms;
    int64_t every_ms;
    int64_t until_ms;
    int64_t correlation_id;
    int64_t size;
    uint8_t frame[];
} ms_periodic;

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
    const ms_transports *transports;
    int epoll_fd;
    int loop_fd;  /* ends the loop's sleep */
    int event_fd; /* ends the sleep of poll() */
    int64_t frame_bytes_max;
    int64_t received_bytes_max;
    int64_t serials;
    ms_connection *table[MS_BUCKETS];
    ms_connection *by_serial[MS_BUCKETS];
    ms_connection *dead; /* to be closed by the loop */
    ms_periodic *periodics;
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

/* ---- making and ending, without any lock ---- */

/* NULL without memory or descriptors; errno tells. */
ms_selector *ms_selector_new(
    int64_t frame_bytes_max, int64_t received_bytes_max, const ms_transports *transports);
/* When the loop has ended: every connection, periodic request and event; what has views comes to
   `spent`. A thread that is sending at this moment is waited for: its connection is in use. */
void ms_selector_clear(ms_selector *selector);
void ms_selector_free(ms_selector *selector);
/* The descriptors alone: in a forked child. */
void ms_close_all(ms_selector *selector);
/* The loop: runs until it is told to stop. Called without the GIL, and never takes it. */
void ms_run(ms_selector *selector);
void ms_stop(ms_selector *selector);

/* ---- for any thread, without the lock ---- */

/* An address from its numeric text; 0 if it is none that a socket connects to. */
int ms_fill_address(
    struct sockaddr_storage *out, int family, const char *host, uint16_t port, uint32_t scope);
/* Make a connection known; its serial, 0 without memory, or -1 if there is one of this id. */
int64_t ms_open(ms_selector *selector, int64_t connection_id);
/* Where the connection of this id and serial is to go; if it is still wanted, the addresses are
   its own from now on. Without any it has failed. */
void ms_give_addresses(
    ms_selector *selector, int64_t connection_id, int64_t serial,
    struct sockaddr_storage *addresses, int count);
/* Queue a frame, and send it here and now if `is_small`: it is not worth another thread's waking. */
void ms_send(ms_selector *selector, int64_t connection_id, ms_outgoing *out, int is_small);
void ms_close(ms_selector *selector, int64_t connection_id);
void ms_repeat(ms_selector *selector, ms_periodic *periodic);
void ms_cancel(ms_selector *selector, int64_t periodic_id);
/* Sleep until there are events, wake() was called or the time is over: 1. For a signal: 0. */
int ms_await_events(ms_selector *selector, int64_t deadline_ms);
/* The events so far, for the caller to free, and the frames whose views it must release. */
ms_event *ms_take_events(ms_selector *selector, ms_outgoing **spent);
void ms_event_free(ms_selector *selector, ms_event *event);
void ms_wake(ms_selector *selector);
/* Have the driver called soon. */
void ms_drive(ms_selector *selector);
/* There is one for the life of a selector; its owner outlives the loop. 0 if it has one already. */
int ms_set_driver(ms_selector *selector, ms_driver *driver);

/* ---- under the lock, for connections and the driver ---- */

ms_event *ms_event_new(int kind, int64_t connection_id, int64_t data_size);
void ms_events_reset(ms_events *events);
void ms_events_add(ms_events *events, ms_event *event);
/* Let the loop look around. */
void ms_wake_loop(ms_selector *selector);
/* End the sleep of poll(), if it sleeps. */
void ms_announce(ms_selector *selector);
/* Have poll() hear of the events soon, but not for their own sake. */
void ms_announce_later(ms_selector *selector, int64_t now_ms);
ms_connection *ms_connection_find(ms_selector *selector, int64_t id);
/* epoll looks at the socket no longer. It is not closed: a thread may be sending. */
void ms_connection_unwatch(ms_selector *selector, const ms_connection *connection);
/* One more reason for the connection's end. */
void ms_connection_note(ms_connection *connection, int code);
/* It is over, and its user shall hear why. */
void ms_connection_fail(ms_selector *selector, ms_connection *connection);

#endif
