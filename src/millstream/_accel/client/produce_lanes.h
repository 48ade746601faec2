/* Produce requests from the thread of the sockets: batches that are full or have lingered long
   enough leave on time, whoever holds the GIL.

   A partition is "express" while its leader is connected, nothing of it failed and Python has said
   who it is from (`ms_lane`). Then only the loop takes batches from it. Python hears of each
   request by an event, and reads the answer itself. Whatever is unusual in an answer shuts the
   connection for express requests until Python opens it again.

   `ms_lanes.turn` is held by who takes and sends, so that batches leave in their order.
   `ms_gate.lock` guards partitions, slots and flights; it is taken after the turn. Under it a
   selector's lock may be taken, never the other way round. */

#ifndef MILLSTREAM_PRODUCE_LANES_H
#define MILLSTREAM_PRODUCE_LANES_H

#include "client/accumulator.h"
#include "codec/batch.h"
#include "client/client_calls.h"

#define MS_FLIGHT_SLOTS_MAX 64
#define MS_FIRST_EXPRESS_ID (1 << 29)
#define MS_END_EXPRESS_ID (1 << 30)

struct ms_part;

/* A batch that waits in its queue, or is on its way. Both the queue or flight, and the frame, hold
   on to it; the last of them lets go of the objects, in a thread of Python's. */
typedef struct ms_slot {
    struct ms_slot *next;
    struct ms_part *part;
    ms_batch *records;
    int *exports; /* of the writer: it does not change while this is not 0 */
    int64_t created_ms;
    int64_t sequence;
    int64_t producer_id;
    int64_t producer_epoch;
    int is_closed;
    int can_wait; /* nobody waits for its end: a table's */
    int holders; /* under the gate */
    PyObject *queue;
    PyObject *batch;
    PyObject *writer;
} ms_slot;

/* Who the batches of a partition are from, and how a request to its leader begins. */
typedef struct {
    int64_t connection_id;
    int64_t producer_id;
    int64_t producer_epoch;
    int64_t sequence; /* -1: batches are not numbered */
    int version;
    int64_t topic; /* which partitions may share a request */
    int64_t head_size;
    uint8_t *head; /* from the API key to the topic; the correlation id is filled in */
} ms_lane;

typedef struct ms_part {
    ms_slot *first;
    ms_slot **end;
    ms_batch *open; /* where the next record goes; NULL if a new batch must begin */
    int32_t index;
    int is_express;
    ms_lane lane;
    struct ms_part *next_active;
    int is_active;
} ms_part;

/* One request that was sent and that Python has not heard of yet. */
typedef struct ms_flight {
    struct ms_flight *next;
    int64_t connection_id;
    int32_t correlation_id;
    int version;
    int can_wait;
    int slot_count;
    ms_slot *slots[MS_FLIGHT_SLOTS_MAX];
} ms_flight;

typedef struct {
    ms_driver driver; /* first, so that one is the other */
    pthread_mutex_t turn;
    ms_gate gate;
    ms_selector *selector; /* NULL until there is one */
    uint32_t (*checksum)(uint32_t seed, const uint8_t *data, size_t size);
    int64_t linger_ms;
    int64_t request_bytes_max;
    int in_flight_max;
    int hurries; /* nothing lingers: somebody flushes, closes, or waits for memory */
    int keepers; /* threads that are about to send what they have filled */
    int32_t next_id;
    int64_t loop_due_ms; /* when the loop looks here by itself: for later things it needs no kick */
    ms_part *active;
    ms_flight *sent;
    ms_flight **sent_end;
} ms_lanes;

/* ---- queues, under the gate ---- */

static inline void ms_part_init(ms_part *part, int32_t index)
{
    memset(part, 0, sizeof *part);
    part->index = index;
    part->end = &part->first;
}

static inline void ms_part_activate(ms_lanes *lanes, ms_part *part)
{
    if (part->is_express && part->first && !part->is_active) {
        part->is_active = 1;
        part->next_active = lanes->active;
        lanes->active = part;
    }
}

static inline void ms_part_deactivate(ms_lanes *lanes, ms_part *part)
{
    for (ms_part **at = &lanes->active; *at; at = &(*at)->next_active) {
        if (*at == part) {
            *at = part->next_active;
            part->is_active = 0;
            return;
        }
    }
}

static inline void ms_part_add(ms_part *part, ms_slot *slot)
{
    slot->next = NULL;
    slot->part = part;
    *part->end = slot;
    part->end = &slot->next;
    part->open = slot->records;
}

/* The slot of a batch, out of its queue; NULL if it is not there. */
static inline ms_slot *ms_part_remove(ms_part *part, PyObject *batch)
{
    for (ms_slot **at = &part->first; *at; at = &(*at)->next) {
        ms_slot *slot = *at;
        if (slot->batch != batch)
            continue;
        *at = slot->next;
        if (!*at)
            part->end = at;
        if (part->open == slot->records)
            part->open = NULL;
        return slot;
    }
    return NULL;
}

static inline void ms_part_close(ms_part *part)
{
    for (ms_slot *slot = part->first; slot; slot = slot->next)
        if (slot->records == part->open)
            slot->is_closed = 1;
    part->open = NULL;
}

/* ---- choosing what to send, under the gate ---- */

/* Whether the loop leaves a batch to the thread that filled it, in whose caches it is. */
static inline int ms_slot_is_kept(const ms_lanes *lanes, const ms_slot *slot, int is_loop)
{
    return is_loop && lanes->keepers && slot->can_wait;
}

static inline int ms_slot_is_due(const ms_lanes *lanes, const ms_slot *slot, int64_t now_ms)
{
    return slot->is_closed || lanes->hurries || now_ms >= slot->created_ms + lanes->linger_ms;
}

/* Whether the leader can take a request: 1, not now: 0, not by us any more: -1. */
static inline int ms_part_can_send(ms_lanes *lanes, const ms_part *part)
{
    int answer = -1;
    pthread_mutex_lock(&lanes->selector->lock);
    ms_connection *connection =
        ms_connection_find(lanes->selector, part->lane.connection_id);
    if (connection && connection->state == MS_OPEN && !connection->is_express_shut)
        answer = connection->express_in_flight < lanes->in_flight_max;
    if (answer < 0) {
        /* Nothing else may tell the Sender that it has to go on. */
        lanes->selector->is_woken = 1;
        ms_announce(lanes->selector);
    }
    pthread_mutex_unlock(&lanes->selector->lock);
    return answer;
}

/* The first batch of a partition goes: numbered, closed, and pinned where it is. */
static inline ms_slot *ms_part_take(ms_part *part)
{
    ms_slot *slot = part->first;
    part->first = slot->next;
    if (!part->first)
        part->end = &part->first;
    if (part->open == slot->records)
        part->open = NULL;
    slot->is_closed = 1;
    slot->sequence = part->lane.sequence;
    slot->producer_id = part->lane.sequence < 0 ? -1 : part->lane.producer_id;
    slot->producer_epoch = part->lane.sequence < 0 ? -1 : part->lane.producer_epoch;
    if (part->lane.sequence >= 0)
        part->lane.sequence =
            (part->lane.sequence + slot->records->record_count) & INT64_C(0x7fffffff);
    __atomic_add_fetch(slot->exports, 1, __ATOMIC_ACQ_REL);
    slot->holders++; /* the frame */
    return slot;
}

/* A frame lets go of a batch: sent, or never to be. */
static inline void ms_slot_unpin(ms_slot *slot)
{
    __atomic_sub_fetch(slot->exports, 1, __ATOMIC_ACQ_REL);
    slot->holders--;
}

/* More partitions for the same request: of the same topic, on the same connection. */
static inline void ms_flight_fill(
    ms_lanes *lanes, ms_flight *flight, const ms_lane *lane, int64_t now_ms, int is_loop)
{
    int64_t bytes = 0;
    for (ms_part *part = lanes->active; part; part = part->next_active) {
        if (!part->is_express || !part->first || !ms_slot_is_due(lanes, part->first, now_ms)
            || ms_slot_is_kept(lanes, part->first, is_loop)
            || part->lane.connection_id != lane->connection_id || part->lane.topic != lane->topic
            || part->lane.version != lane->version)
            continue;
        bytes += part->first->records->length + MS_HEADER_SIZE;
        if (flight->slot_count
            && (bytes > lanes->request_bytes_max || flight->slot_count == MS_FLIGHT_SLOTS_MAX))
            return;
        flight->can_wait = flight->can_wait && part->first->can_wait;
        flight->slots[flight->slot_count++] = ms_part_take(part);
    }
}

/* What may leave now, or NULL; `due_ms` is when something will. */
static inline ms_flight *ms_lanes_take(
    ms_lanes *lanes, int64_t now_ms, int is_loop, int64_t *due_ms)
{
    ms_part **at = &lanes->active;
    while (*at) {
        ms_part *part = *at;
        int can_send = 0;
        if (part->is_express && part->first && !ms_slot_is_kept(lanes, part->first, is_loop)) {
            if (ms_slot_is_due(lanes, part->first, now_ms)) {
                can_send = ms_part_can_send(lanes, part);
                if (can_send < 0)
                    part->is_express = 0;
            } else if (part->first->created_ms + lanes->linger_ms < *due_ms) {
                *due_ms = part->first->created_ms + lanes->linger_ms;
            }
        }
        if (!part->is_express || !part->first) {
            part->is_active = 0;
            *at = part->next_active;
            continue;
        }
        if (can_send > 0) {
            ms_flight *flight = (ms_flight *)calloc(1, sizeof *flight);
            if (!flight)
                return NULL;
            flight->connection_id = part->lane.connection_id;
            flight->version = part->lane.version;
            flight->can_wait = 1;
            flight->correlation_id = lanes->next_id;
            if (++lanes->next_id == MS_END_EXPRESS_ID)
                lanes->next_id = MS_FIRST_EXPRESS_ID;
            ms_flight_fill(lanes, flight, &part->lane, now_ms, is_loop);
            *lanes->sent_end = flight;
            lanes->sent_end = &flight->next;
            return flight;
        }
        at = &part->next_active;
    }
    return NULL;
}

#endif
