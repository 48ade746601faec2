/* The batches of a producer that wait to be sent, and how they leave.

   A partition may send as many batches as the Sender has granted it (`allowance`): none, one, or any
   number. `ms_sink_take` takes what is due and granted, and gives new batches their sequence; that is
   the only place where it is done. With a selector its thread, or a thread that has just filled a
   batch, takes, frames and sends without the GIL. Without one the Sender takes, and sends by itself.

   Locks, in their order: the accumulator's own (Python's), `sending` (held while requests are taken
   and sent, so that they leave in their order), `spin` (all that is in a partition, for moments in
   which nothing of Python runs), the selector's. References are counted with the GIL only. */

#ifndef MILLSTREAM_SINK_H
#define MILLSTREAM_SINK_H

#include <Python.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "client/client_sockets.h"
#include "codec/batch.h"

#define MS_REQUEST_BATCHES_MAX 64
#define MS_UNLIMITED INT32_MAX
#define MS_SPINS_MAX 64 /* before the processor is left to others: the holder may wait for it */

struct ms_partition;

/* A batch that waits in its queue, or is on its way. Both the queue or request, and the frame, hold
   it; the last of them lets go of the objects, in a thread with the GIL. */
typedef struct ms_entry {
    struct ms_entry *next;
    struct ms_partition *partition;
    ms_batch *records;     /* NULL if Python has sealed it: then only Python sends it */
    int *exports;          /* of the writer: it does not change while this is not 0 */
    int64_t sealed_size;   /* of what Python has sealed */
    int64_t created_ms;
    int64_t not_before_ms; /* of a repeat: the end of its backoff */
    int is_closed;
    int is_repeat;         /* it was sent before, and keeps its number */
    int64_t producer_id;
    int64_t producer_epoch;
    int64_t sequence;
    int holders;           /* under `spin` */
    PyObject *queue;
    PyObject *batch;
    PyObject *writer;
} ms_entry;

/* Where the batches of a partition go, and how a request to its leader begins. */
typedef struct {
    int64_t connection_id;
    int version;
    int attributes;  /* of every batch */
    int64_t topic;   /* which partitions may share a request */
    int64_t head_size;
    uint8_t *head;   /* from the API key to the topic; the correlation id is filled in */
} ms_route;

/* The state of one partition; the sink is its owner. */
typedef struct ms_partition {
    ms_entry *first;
    ms_entry **end;
    ms_batch *open; /* where the next record goes; NULL if a new batch must begin */
    int64_t count;
    int32_t index;
    int32_t allowance;
    int64_t producer_id; /* -1: batches are not numbered */
    int64_t producer_epoch;
    int64_t sequence; /* of the next new batch */
    ms_route route;
    struct ms_partition *next_active;
    int is_active;
} ms_partition;

/* One request that was taken and that the Sender has not heard of yet. */
typedef struct ms_request {
    struct ms_request *next;
    int64_t connection_id;
    int32_t correlation_id;
    int version;
    int count;
    ms_entry *entries[MS_REQUEST_BATCHES_MAX];
} ms_request;

typedef struct {
    ms_driver driver; /* first, so that one is the other */
    pthread_mutex_t sending;
    int spin;
    int is_held;    /* a thread changes the queues, in Python: nobody else looks at them */
    int is_awaited; /* a thread could not look: the loop is to be woken afterwards */
    int is_sender_near; /* a thread that has filled batches is going to send: the loop leaves them
                           to it, in whose caches they are */
    ms_selector *selector; /* NULL: the Sender takes */
    uint32_t (*checksum)(uint32_t seed, const uint8_t *data, size_t size);
    int64_t linger_ms;
    int64_t request_bytes_max;
    int in_flight_max;
    int expects_answers; /* not with acks=0 */
    int is_flushing;         /* nothing lingers: somebody flushes, closes, or waits for memory */
    int32_t next_id;
    int64_t loop_due_ms; /* when the loop looks here by itself: for later things it is not woken */
    ms_partition *active;
    ms_request *sent;
    ms_request **sent_end;
} ms_sink;

/* Locked and unlocked for every record, and hardly ever by two at once, so the lock is a number: a
   mutex would cost more than the record's own bytes. */
static inline void ms_sink_lock(ms_sink *sink)
{
    for (int tries = 0; __atomic_exchange_n(&sink->spin, 1, __ATOMIC_ACQUIRE); tries++)
        if (tries >= MS_SPINS_MAX)
            sched_yield();
}

static inline void ms_sink_unlock(ms_sink *sink)
{
    __atomic_store_n(&sink->spin, 0, __ATOMIC_RELEASE);
}

void ms_sink_init(ms_sink *sink, uint32_t (*checksum)(uint32_t, const uint8_t *, size_t));
void ms_sink_end(ms_sink *sink);

/* ---- under `spin` ---- */

void ms_partition_init(ms_partition *partition, int32_t index);
void ms_partition_add(ms_partition *partition, ms_entry *entry);
void ms_partition_put_back(ms_partition *partition, ms_entry *entry, int64_t place);
ms_entry *ms_partition_remove(ms_partition *partition, const PyObject *batch);
void ms_partition_close(ms_partition *partition);
void ms_partition_activate(ms_sink *sink, ms_partition *partition);
void ms_partition_deactivate(ms_sink *sink, ms_partition *partition);
void ms_entry_unpin(ms_entry *entry);

/* The next request of what is due, or NULL; `due_ms` becomes the time of the next batch if that is
   earlier. `connection_id` not 0: only for that one, which the caller knows to have room. */
ms_request *ms_sink_take(
    ms_sink *sink, int64_t now_ms, int64_t connection_id, int64_t *due_ms);
ms_request *ms_sink_take_sent(ms_sink *sink);

/* ---- without any lock ---- */

/* Send what is due, from a thread that holds neither a lock nor the GIL. */
void ms_sink_send(ms_sink *sink);
void ms_sink_wake_loop(ms_sink *sink);
/* A connection may carry requests of the sink (again); 0 if it is not open. */
int ms_sink_resume(ms_sink *sink, int64_t connection_id);

#endif
