/* One request of a lane on its way: its bytes, its sending, its answer. See produce_lanes.h. */

#ifndef MILLSTREAM_PRODUCE_FLIGHT_H
#define MILLSTREAM_PRODUCE_FLIGHT_H

#include "codec/crc_join.h"
#include "client/produce_answer.h"
#include "client/produce_lanes.h"

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

/* The checksum of a header, whose own is `crc`, and its records, part of which may be summed. */
static inline uint32_t ms_frame_sum(ms_lanes *lanes, uint32_t crc, const ms_batch *records)
{
    if (!records->summed)
        return lanes->checksum(crc, records->data, (size_t)records->length);
    uint32_t sum = lanes->checksum(
        records->sum, records->data + records->summed,
        (size_t)(records->length - records->summed));
    return ms_crc_join(crc, sum, (uint64_t)records->length);
}

/* Without the gate, the batches being pinned: the checksums, which take a while. */
static inline void ms_frame_seal(ms_lanes *lanes, ms_outgoing *out)
{
    for (int i = 0; i < out->kept_count; i++) {
        const struct iovec *head = &out->vectors[2 * i];
        uint8_t *header = (uint8_t *)head->iov_base + head->iov_len - MS_HEADER_SIZE;
        uint32_t crc = lanes->checksum(0, header + MS_CRC_END, MS_HEADER_SIZE - MS_CRC_END);
        crc = ms_frame_sum(lanes, crc, ((ms_slot **)out->kept)[i]->records);
        ms_write_big_endian(header + MS_CRC_AT, crc, 4);
    }
}

/* Under the gate, so that who waits for a batch finds it either here or in its queue: what is to be
   known when the answer comes. */
static inline void ms_flight_expect(ms_lanes *lanes, const ms_flight *flight)
{
    int place = flight->correlation_id % MS_EXPRESS_MAX;
    pthread_mutex_lock(&lanes->selector->lock);
    ms_connection *connection = ms_connection_find(lanes->selector, flight->connection_id);
    if (connection) {
        connection->express_versions[place] = (uint8_t)flight->version;
        connection->express_can_wait[place] = (uint8_t)flight->can_wait;
    }
    pthread_mutex_unlock(&lanes->selector->lock);
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
        /* Its answer will wake poll(), soon as a rule: one awakening instead of two. */
        if (!is_open)
            ms_announce(selector);
        else
            ms_announce_later(selector, event->sent_ms);
    }
    if (out && (!is_open || !event)) {
        ms_outgoing_done(selector, out);
    } else if (out) {
        connection->express_in_flight++;
        ms_queue(connection, out);
        ms_flush(selector, connection);
    }
    if ((!out || !event) && is_open) {
        ms_connection_note(connection, ENOMEM);
        ms_connection_fail(selector, connection);
    }
    pthread_mutex_unlock(&selector->lock);
}

/* Who sends: the loop; a thread that has something urgent; one that keeps what it has filled. */
enum ms_sender { MS_LOOP, MS_PASSER, MS_KEEPER };

/* With the turn: send what is due; when the next will be. The loop comes back by then. */
static inline int64_t ms_lanes_serve(ms_lanes *lanes, int64_t now_ms, enum ms_sender who)
{
    int is_loop = who == MS_LOOP;
    for (;;) {
        int64_t due_ms = MS_NEVER;
        ms_gate_lock(&lanes->gate);
        if (lanes->gate.is_held) {
            lanes->gate.is_awaited = 1; /* who holds it kicks us when leaving */
            if (is_loop)
                lanes->loop_due_ms = MS_NEVER;
            lanes->keepers -= who == MS_KEEPER;
            ms_gate_unlock(&lanes->gate);
            return is_loop ? MS_NEVER : 0; /* or was it here already, and has left it to us? */
        }
        ms_flight *flight = ms_lanes_take(lanes, now_ms, is_loop, &due_ms);
        ms_outgoing *out = flight ? ms_flight_frame(flight) : NULL;
        ms_flight copy;
        if (flight) { /* Python may free it as soon as the gate is open. */
            ms_flight_expect(lanes, flight);
            copy.connection_id = flight->connection_id;
            copy.correlation_id = flight->correlation_id;
        }
        if (!flight && is_loop)
            lanes->loop_due_ms = due_ms;
        if (!flight)
            lanes->keepers -= who == MS_KEEPER;
        ms_gate_unlock(&lanes->gate);
        if (!flight)
            return due_ms;
        if (out)
            ms_frame_seal(lanes, out);
        ms_flight_send(lanes, &copy, out);
    }
}

static inline int64_t ms_lanes_run(ms_driver *driver, int64_t now_ms)
{
    ms_lanes *lanes = (ms_lanes *)driver;
    pthread_mutex_lock(&lanes->turn);
    int64_t next_ms = ms_lanes_serve(lanes, now_ms, MS_LOOP);
    pthread_mutex_unlock(&lanes->turn);
    return next_ms;
}

static inline int ms_lanes_answered(
    ms_driver *driver, ms_connection *connection, const uint8_t *frame, int64_t size)
{
    ms_lanes *lanes = (ms_lanes *)driver;
    int place = (int)(ms_read_big_endian(frame, 4) % MS_EXPRESS_MAX);
    pthread_mutex_lock(&lanes->selector->lock);
    connection->express_in_flight--;
    int is_well = ms_is_plain_success(frame, size, connection->express_versions[place]);
    if (!is_well)
        connection->is_express_shut = 1;
    pthread_mutex_unlock(&lanes->selector->lock);
    return is_well;
}

/* ---- for Python ---- */

static inline void ms_lanes_init(
    ms_lanes *lanes, uint32_t (*checksum)(uint32_t, const uint8_t *, size_t))
{
    memset(lanes, 0, sizeof *lanes);
    pthread_mutex_init(&lanes->turn, NULL);
    ms_gate_init(&lanes->gate);
    lanes->driver.run = ms_lanes_run;
    lanes->driver.answered = ms_lanes_answered;
    lanes->driver.first_id = MS_FIRST_EXPRESS_ID;
    lanes->driver.end_id = MS_END_EXPRESS_ID;
    lanes->checksum = checksum;
    lanes->next_id = MS_FIRST_EXPRESS_ID;
    lanes->loop_due_ms = MS_NEVER;
    lanes->sent_end = &lanes->sent;
}

static inline void ms_lanes_end(ms_lanes *lanes)
{
    pthread_mutex_destroy(&lanes->turn);
}

/* Let the loop look around; without the gate. */
static inline void ms_lanes_kick(ms_lanes *lanes)
{
    if (lanes->selector)
        ms_drive(lanes->selector);
}

/* With the turn, which it gives back: send what is due from here, which is sooner than another thread
   can. The loop looks again afterwards if it has a timer to set. */
static inline void ms_lanes_serve_here(ms_lanes *lanes, enum ms_sender who)
{
    int64_t due_ms = ms_lanes_serve(lanes, ms_monotonic_ms(), who);
    pthread_mutex_unlock(&lanes->turn);
    ms_gate_lock(&lanes->gate);
    int is_loop_due = due_ms < lanes->loop_due_ms;
    ms_gate_unlock(&lanes->gate);
    if (is_loop_due)
        ms_lanes_kick(lanes);
}

/* Send what is due, unless somebody is at it: then the loop looks again, for they may be done. */
static inline void ms_lanes_hurry(ms_lanes *lanes)
{
    if (lanes->selector && !pthread_mutex_trylock(&lanes->turn))
        ms_lanes_serve_here(lanes, MS_PASSER);
    else
        ms_lanes_kick(lanes);
}

/* The caller is going to send what it has filled. `batch` of `part`, unless that is NULL, is one whose
   end nobody waits for as yet. */
static inline void ms_lanes_keep(
    ms_lanes *lanes, const ms_part *part, const PyObject *batch, int is_first)
{
    ms_gate_lock(&lanes->gate);
    lanes->keepers += is_first;
    for (ms_slot *slot = part ? part->first : NULL; slot; slot = slot->next)
        if (slot->batch == batch)
            slot->can_wait = 1;
    ms_gate_unlock(&lanes->gate);
}

/* It does; without the GIL, because it waits for its turn. */
static inline void ms_lanes_send_kept(ms_lanes *lanes)
{
    pthread_mutex_lock(&lanes->turn);
    ms_lanes_serve_here(lanes, MS_KEEPER);
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

/* Somebody waits for the end of a batch, which is in its queue, in a request that Python has not heard
   of, or in that of `correlation_id`; 0 if that is not known. */
static inline void ms_lanes_hasten(
    ms_lanes *lanes, const ms_part *part, const PyObject *batch, int64_t correlation_id)
{
    ms_gate_lock(&lanes->gate);
    for (ms_slot *slot = part->first; slot; slot = slot->next)
        if (slot->batch == batch)
            slot->can_wait = 0;
    for (const ms_flight *flight = lanes->sent; flight; flight = flight->next)
        for (int i = 0; i < flight->slot_count; i++)
            if (flight->slots[i]->batch == batch)
                correlation_id = flight->correlation_id;
    ms_gate_unlock(&lanes->gate);
    if (correlation_id)
        ms_hasten(lanes->selector, correlation_id);
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
