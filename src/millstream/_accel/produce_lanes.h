/* Produce requests from the thread of the sockets: batches that are full or have lingered long
   enough leave on time, whoever holds the GIL.

   A partition is "express" while its leader is connected, nothing of it failed and Python has said
   who it is from (`ms_lane`). Then only the loop takes batches from it. Python hears of each
   request by an event, and reads the answer itself. Whatever is unusual in an answer shuts the
   connection for express requests until Python opens it again.

   `ms_gate.lock` guards partitions, slots and flights. Under it a selector's lock may be taken,
   never the other way round. */

#ifndef MILLSTREAM_PRODUCE_LANES_H
#define MILLSTREAM_PRODUCE_LANES_H

#include "accumulator.h"
#include "batch.h"
#include "client_loop.h"
#include "produce_answer.h"

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
    int slot_count;
    ms_slot *slots[MS_FLIGHT_SLOTS_MAX];
} ms_flight;

typedef struct {
    ms_driver driver; /* first, so that one is the other */
    ms_gate gate;
    ms_selector *selector; /* NULL until there is one */
    uint32_t (*checksum)(uint32_t seed, const uint8_t *data, size_t size);
    int64_t linger_ms;
    int64_t request_bytes_max;
    int in_flight_max;
    int hurries; /* nothing lingers: somebody flushes, closes, or waits for memory */
    int32_t next_id;
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
    ms_lanes *lanes, ms_flight *flight, const ms_lane *lane, int64_t bytes, int64_t now_ms)
{
    for (ms_part *part = lanes->active; part; part = part->next_active) {
        if (!part->is_express || !part->first || !ms_slot_is_due(lanes, part->first, now_ms)
            || part->lane.connection_id != lane->connection_id || part->lane.topic != lane->topic
            || part->lane.version != lane->version)
            continue;
        bytes += part->first->records->length + MS_HEADER_SIZE;
        if (flight->slot_count
            && (bytes > lanes->request_bytes_max || flight->slot_count == MS_FLIGHT_SLOTS_MAX))
            return;
        flight->slots[flight->slot_count++] = ms_part_take(part);
    }
}

/* What may leave now, or NULL; `due_ms` is when something will. */
static inline ms_flight *ms_lanes_take(ms_lanes *lanes, int64_t now_ms, int64_t *due_ms)
{
    ms_part **at = &lanes->active;
    while (*at) {
        ms_part *part = *at;
        int can_send = 0;
        if (part->is_express && part->first) {
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
            flight->correlation_id = lanes->next_id;
            if (++lanes->next_id == MS_END_EXPRESS_ID)
                lanes->next_id = MS_FIRST_EXPRESS_ID;
            ms_flight_fill(lanes, flight, &part->lane, 0, now_ms);
            *lanes->sent_end = flight;
            lanes->sent_end = &flight->next;
            return flight;
        }
        at = &part->next_active;
    }
    return NULL;
}

/* ---- bytes ---- */

static inline uint8_t *ms_put_uvarint(uint8_t *p, uint64_t value)
{
    for (; value > 127; value >>= 7)
        *p++ = (uint8_t)(value | 128);
    *p++ = (uint8_t)value;
    return p;
}

/* All but the checksum. */
static inline uint8_t *ms_put_batch_header(uint8_t *p, const ms_slot *slot)
{
    const ms_batch *records = slot->records;
    int64_t size = MS_HEADER_SIZE + records->length;
    p = ms_write_big_endian(p, 0, 8);
    p = ms_write_big_endian(p, size - MS_LENGTH_END, 4);
    p = ms_write_big_endian(p, -1, 4); /* the leader's epoch is the leader's to fill in */
    p = ms_write_big_endian(p, 2, 1);
    p = ms_write_big_endian(p, 0, 4);
    p = ms_write_big_endian(p, 0, 2);
    p = ms_write_big_endian(p, records->last_offset_delta, 4);
    p = ms_write_big_endian(p, records->base_timestamp, 8);
    p = ms_write_big_endian(p, records->max_timestamp, 8);
    p = ms_write_big_endian(p, slot->producer_id, 8);
    p = ms_write_big_endian(p, slot->producer_epoch, 2);
    p = ms_write_big_endian(p, slot->sequence, 4);
    return ms_write_big_endian(p, records->record_count, 4);
}

/* What precedes a batch's records: for a partition its number, the size and the batch's header. */
static inline uint8_t *ms_put_partition(uint8_t *p, const ms_slot *slot, int is_flexible)
{
    int64_t size = MS_HEADER_SIZE + slot->records->length;
    p = ms_write_big_endian(p, slot->part->index, 4);
    p = is_flexible ? ms_put_uvarint(p, (uint64_t)size + 1) : ms_write_big_endian(p, size, 4);
    return ms_put_batch_header(p, slot);
}

static inline void ms_add_vector(ms_outgoing *out, void *data, int64_t size)
{
    out->vectors[out->vector_count].iov_base = data;
    out->vectors[out->vector_count++].iov_len = (size_t)size;
    out->bytes += size;
}

/* Under the gate: the frame of a flight but for the checksums. The records stay where they are.
   Without memory NULL, and the flight's hold on its batches is all there is. */
static inline ms_outgoing *ms_flight_frame(const ms_flight *flight)
{
    const ms_lane *lane = &flight->slots[0]->part->lane;
    int is_flexible = flight->version >= MS_PRODUCE_FLEXIBLE_FROM;
    int64_t copied = 4 + lane->head_size + 16 + flight->slot_count * (MS_HEADER_SIZE + 16)
        + (int64_t)sizeof(void *) * flight->slot_count;
    ms_outgoing *out = ms_outgoing_new(2 * flight->slot_count + 1, 0, copied);
    if (!out) {
        for (int i = 0; i < flight->slot_count; i++)
            ms_slot_unpin(flight->slots[i]);
        return NULL;
    }
    out->vector_count = 0;
    ms_slot **kept = (ms_slot **)(out->vectors + 2 * flight->slot_count + 1);
    uint8_t *begin = (uint8_t *)(kept + flight->slot_count);
    uint8_t *start = begin;
    uint8_t *p = begin + 4;
    memcpy(p, lane->head, (size_t)lane->head_size);
    ms_write_big_endian(p + MS_CORRELATION_ID_AT - 4, flight->correlation_id, 4);
    p += lane->head_size;
    p = is_flexible ? ms_put_uvarint(p, (uint64_t)flight->slot_count + 1)
                    : ms_write_big_endian(p, flight->slot_count, 4);
    for (int i = 0; i < flight->slot_count; i++) {
        kept[i] = flight->slots[i];
        p = ms_put_partition(p, kept[i], is_flexible);
        ms_add_vector(out, start, p - start);
        ms_add_vector(out, kept[i]->records->data, kept[i]->records->length);
        start = p;
        if (is_flexible)
            *p++ = 0; /* no tags of the partition */
    }
    if (is_flexible) {
        *p++ = 0; /* nor of the topic, */
        *p++ = 0; /* nor of the request */
        ms_add_vector(out, start, p - start);
    }
    ms_write_big_endian(begin, out->bytes - 4, 4);
    out->kept = kept;
    out->kept_count = flight->slot_count;
    return out;
}

/* Without the gate, the batches being pinned: the checksums, which take a while. */
static inline void ms_frame_seal(ms_lanes *lanes, ms_outgoing *out)
{
    for (int i = 0; i < out->kept_count; i++) {
        const struct iovec *head = &out->vectors[2 * i];
        const struct iovec *body = head + 1;
        uint8_t *header = (uint8_t *)head->iov_base + head->iov_len - MS_HEADER_SIZE;
        uint32_t crc = lanes->checksum(0, header + MS_CRC_END, MS_HEADER_SIZE - MS_CRC_END);
        crc = lanes->checksum(crc, (const uint8_t *)body->iov_base, body->iov_len);
        ms_write_big_endian(header + MS_CRC_AT, crc, 4);
    }
}

/* ---- what the loop calls, without any lock ---- */

/* Python hears of a flight in any case; one that could not be sent counts as lost on its way. */
static inline void ms_flight_send(ms_lanes *lanes, const ms_flight *flight, ms_outgoing *out)
{
    ms_selector *selector = lanes->selector;
    int64_t connection_id = flight->connection_id;
    ms_event *event = ms_event_new(MS_DISPATCHED, connection_id, 0);
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, connection_id);
    int is_open = connection && connection->state == MS_OPEN;
    if (event) {
        event->correlation_id = flight->correlation_id;
        event->sent_ms = ms_monotonic_ms();
        ms_events_add(&selector->events, event);
        ms_announce(selector);
    }
    if (out && (!is_open || !event)) {
        ms_outgoing_done(selector, out);
    } else if (out) {
        connection->express_in_flight++;
        connection->express_versions[flight->correlation_id % MS_EXPRESS_MAX] =
            (uint8_t)flight->version;
        ms_queue(connection, out);
        ms_flush(selector, connection);
    }
    if ((!out || !event) && is_open) {
        ms_connection_note(connection, ENOMEM);
        ms_connection_fail(selector, connection);
    }
    pthread_mutex_unlock(&selector->lock);
}

static inline int64_t ms_lanes_run(ms_driver *driver, int64_t now_ms)
{
    ms_lanes *lanes = (ms_lanes *)driver;
    for (;;) {
        int64_t due_ms = MS_NEVER;
        ms_gate_lock(&lanes->gate);
        if (lanes->gate.is_held) {
            lanes->gate.is_awaited = 1; /* who holds it kicks us when leaving */
            ms_gate_unlock(&lanes->gate);
            return MS_NEVER;
        }
        ms_flight *flight = ms_lanes_take(lanes, now_ms, &due_ms);
        ms_outgoing *out = flight ? ms_flight_frame(flight) : NULL;
        ms_flight copy;
        if (flight) { /* Python may free it as soon as the gate is open. */
            copy.connection_id = flight->connection_id;
            copy.correlation_id = flight->correlation_id;
            copy.version = flight->version;
        }
        ms_gate_unlock(&lanes->gate);
        if (!flight)
            return due_ms;
        if (out)
            ms_frame_seal(lanes, out);
        ms_flight_send(lanes, &copy, out);
    }
}

static inline void ms_lanes_answered(
    ms_driver *driver, ms_connection *connection, const uint8_t *frame, int64_t size)
{
    ms_lanes *lanes = (ms_lanes *)driver;
    int32_t id = (int32_t)ms_read_big_endian(frame, 4);
    pthread_mutex_lock(&lanes->selector->lock);
    connection->express_in_flight--;
    if (!ms_is_plain_success(frame, size, connection->express_versions[id % MS_EXPRESS_MAX]))
        connection->is_express_shut = 1;
    pthread_mutex_unlock(&lanes->selector->lock);
}

/* ---- for Python ---- */

static inline void ms_lanes_init(
    ms_lanes *lanes, uint32_t (*checksum)(uint32_t, const uint8_t *, size_t))
{
    memset(lanes, 0, sizeof *lanes);
    ms_gate_init(&lanes->gate);
    lanes->driver.run = ms_lanes_run;
    lanes->driver.answered = ms_lanes_answered;
    lanes->driver.first_id = MS_FIRST_EXPRESS_ID;
    lanes->driver.end_id = MS_END_EXPRESS_ID;
    lanes->checksum = checksum;
    lanes->next_id = MS_FIRST_EXPRESS_ID;
    lanes->sent_end = &lanes->sent;
}

/* Let the loop look around; without the gate. */
static inline void ms_lanes_kick(ms_lanes *lanes)
{
    if (lanes->selector)
        ms_drive(lanes->selector);
}

/* A connection may carry express requests (again). */
static inline int ms_lanes_unshut(ms_lanes *lanes, int64_t connection_id)
{
    int is_open = 0;
    pthread_mutex_lock(&lanes->selector->lock);
    ms_connection *connection = ms_connection_find(lanes->selector, connection_id);
    if (connection && connection->state == MS_OPEN) {
        is_open = 1;
        connection->is_express_shut = 0;
    }
    pthread_mutex_unlock(&lanes->selector->lock);
    return is_open;
}

/* The flights that Python has not heard of. */
static inline ms_flight *ms_lanes_take_sent(ms_lanes *lanes)
{
    ms_flight *flights = lanes->sent;
    lanes->sent = NULL;
    lanes->sent_end = &lanes->sent;
    return flights;
}

#endif
