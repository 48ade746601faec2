/* See sink.h: queues of batches, what is due, requests from them, and their sending. */

#include "client/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_connection.h"
#include "client/produce_answer.h"
#include "clocks.h"
#include "codec/crc_join.h"

#define MS_FIRST_SINK_ID (1 << 29)
#define MS_END_SINK_ID (1 << 30)

/* ---- queues, under `spin` ---- */

void ms_partition_init(ms_partition *partition, int32_t index)
{
    memset(partition, 0, sizeof *partition);
    partition->index = index;
    partition->producer_id = -1;
    partition->producer_epoch = -1;
    partition->end = &partition->first;
}

void ms_partition_activate(ms_sink *sink, ms_partition *partition)
{
    if (partition->allowance && partition->first && !partition->is_active) {
        partition->is_active = 1;
        partition->next_active = sink->active;
        sink->active = partition;
    }
}

void ms_partition_deactivate(ms_sink *sink, ms_partition *partition)
{
    for (ms_partition **at = &sink->active; *at; at = &(*at)->next_active) {
        if (*at == partition) {
            *at = partition->next_active;
            partition->is_active = 0;
            return;
        }
    }
}

/* A new batch, which takes the next records. */
void ms_partition_add(ms_partition *partition, ms_entry *entry)
{
    entry->next = NULL;
    entry->partition = partition;
    *partition->end = entry;
    partition->end = &entry->next;
    partition->open = entry->records;
    partition->count++;
}

/* A batch is to be sent again, before all that were not: `place` others are before it. */
void ms_partition_put_back(ms_partition *partition, ms_entry *entry, int64_t place)
{
    ms_entry **at = &partition->first;
    while (place-- > 0 && *at)
        at = &(*at)->next;
    entry->partition = partition;
    entry->is_closed = 1;
    entry->is_repeat = 1;
    entry->next = *at;
    *at = entry;
    if (!entry->next)
        partition->end = &entry->next;
    partition->count++;
}

/* `*at`, out of its queue. */
static ms_entry *ms_partition_unlink(ms_partition *partition, ms_entry **at)
{
    ms_entry *entry = *at;
    *at = entry->next;
    if (!*at)
        partition->end = at;
    if (entry->records && partition->open == entry->records)
        partition->open = NULL;
    partition->count--;
    return entry;
}

/* The entry of a batch, out of its queue; NULL if it is not there. */
ms_entry *ms_partition_remove(ms_partition *partition, const PyObject *batch)
{
    for (ms_entry **at = &partition->first; *at; at = &(*at)->next)
        if ((*at)->batch == batch)
            return ms_partition_unlink(partition, at);
    return NULL;
}

/* The open batch takes no more records. */
void ms_partition_close(ms_partition *partition)
{
    for (ms_entry *entry = partition->first; entry; entry = entry->next)
        if (entry->records && entry->records == partition->open)
            entry->is_closed = 1;
    partition->open = NULL;
}

/* A frame lets go of a batch: sent, or never to be. */
void ms_entry_unpin(ms_entry *entry)
{
    __atomic_sub_fetch(entry->exports, 1, __ATOMIC_ACQ_REL);
    entry->holders--;
}

/* ---- taking what is due, under `spin` ---- */

/* When a batch may leave: the one rule. */
static int64_t ms_entry_due_ms(const ms_sink *sink, const ms_entry *entry)
{
    if (entry->is_closed || sink->is_flushing)
        return entry->not_before_ms;
    return entry->created_ms + sink->linger_ms;
}

static int64_t ms_entry_size(const ms_entry *entry)
{
    return entry->records ? MS_HEADER_SIZE + entry->records->length : entry->sealed_size;
}

/* Whether the leader can take a request: 1, not now: 0, not by the sink any more: -1. */
static int ms_partition_has_room(ms_sink *sink, const ms_partition *partition)
{
    int answer = -1;
    ms_selector *selector = sink->selector;
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection =
        ms_connection_find(selector, partition->route.connection_id);
    if (connection && connection->state == MS_READY && !connection->is_suspended)
        answer = connection->driver_in_flight < sink->in_flight_max;
    if (answer < 0) {
        /* Nothing else may tell the Sender that it has to go on. */
        selector->is_woken = 1;
        ms_announce(selector);
    }
    pthread_mutex_unlock(&selector->lock);
    return answer;
}

/* The first batch of a partition goes, numbered and closed. */
static ms_entry *ms_partition_take(ms_sink *sink, ms_partition *partition)
{
    ms_entry *entry = ms_partition_unlink(partition, &partition->first);
    entry->is_closed = 1;
    if (!entry->is_repeat && partition->producer_id >= 0) {
        entry->producer_id = partition->producer_id;
        entry->producer_epoch = partition->producer_epoch;
        entry->sequence = partition->sequence;
        partition->sequence =
            (partition->sequence + entry->records->record_count) & INT64_C(0x7fffffff);
    }
    if (partition->allowance != MS_UNLIMITED)
        partition->allowance--;
    if (sink->selector) { /* for the frame */
        __atomic_add_fetch(entry->exports, 1, __ATOMIC_ACQ_REL);
        entry->holders++;
    }
    return entry;
}

/* Whether the first batch of a partition may leave with those of another. */
static int ms_can_join(
    const ms_sink *sink, const ms_partition *partition, const ms_route *route, int64_t now_ms)
{
    return partition->allowance && partition->first
        && ms_entry_due_ms(sink, partition->first) <= now_ms
        && partition->route.connection_id == route->connection_id
        && partition->route.version == route->version
        /* Who builds requests in Python can name several topics. */
        && (!sink->selector || partition->route.topic == route->topic);
}

static void ms_request_fill(
    ms_sink *sink, ms_request *request, const ms_route *route, int64_t now_ms)
{
    int64_t bytes = 0;
    for (ms_partition *partition = sink->active; partition; partition = partition->next_active) {
        if (!ms_can_join(sink, partition, route, now_ms))
            continue;
        bytes += ms_entry_size(partition->first);
        /* A batch that alone is too large for a request goes alone. */
        if (request->count
            && (bytes > sink->request_bytes_max || request->count == MS_REQUEST_BATCHES_MAX))
            return;
        request->entries[request->count++] = ms_partition_take(sink, partition);
    }
}

static ms_request *ms_request_new(ms_sink *sink, const ms_route *route)
{
    ms_request *request = (ms_request *)calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->connection_id = route->connection_id;
    request->version = route->version;
    request->correlation_id = sink->next_id;
    if (++sink->next_id == MS_END_SINK_ID)
        sink->next_id = MS_FIRST_SINK_ID;
    *sink->sent_end = request;
    sink->sent_end = &request->next;
    return request;
}

ms_request *ms_sink_take(
    ms_sink *sink, int64_t now_ms, int64_t connection_id, int64_t *due_ms)
{
    ms_partition **at = &sink->active;
    while (*at) {
        ms_partition *partition = *at;
        int has_room = 0;
        if (partition->allowance && partition->first) {
            int64_t its_due_ms = ms_entry_due_ms(sink, partition->first);
            if (its_due_ms <= now_ms) {
                has_room = connection_id ? partition->route.connection_id == connection_id
                                         : ms_partition_has_room(sink, partition);
                if (has_room < 0)
                    partition->allowance = 0;
            } else if (its_due_ms < *due_ms) {
                *due_ms = its_due_ms;
            }
        }
        if (!partition->allowance || !partition->first) {
            partition->is_active = 0;
            *at = partition->next_active;
            continue;
        }
        if (has_room > 0) {
            ms_request *request = ms_request_new(sink, &partition->route);
            if (request)
                ms_request_fill(sink, request, &partition->route, now_ms);
            return request;
        }
        at = &partition->next_active;
    }
    return NULL;
}

/* The requests that the Sender has not heard of. */
ms_request *ms_sink_take_sent(ms_sink *sink)
{
    ms_request *requests = sink->sent;
    sink->sent = NULL;
    sink->sent_end = &sink->sent;
    return requests;
}

/* ---- the bytes of a request ---- */

/* All but the checksum. */
static uint8_t *ms_put_batch_header(uint8_t *p, const ms_entry *entry)
{
    const ms_batch *records = entry->records;
    int64_t size = MS_HEADER_SIZE + records->length;
    p = ms_write_big_endian(p, 0, 8);
    p = ms_write_big_endian(p, size - MS_LENGTH_END, 4);
    p = ms_write_big_endian(p, -1, 4); /* the leader's epoch is the leader's to fill in */
    p = ms_write_big_endian(p, 2, 1);
    p = ms_write_big_endian(p, 0, 4);
    p = ms_write_big_endian(p, entry->partition->route.attributes, 2);
    p = ms_write_big_endian(p, records->last_offset_delta, 4);
    p = ms_write_big_endian(p, records->base_timestamp, 8);
    p = ms_write_big_endian(p, records->max_timestamp, 8);
    p = ms_write_big_endian(p, entry->producer_id, 8);
    p = ms_write_big_endian(p, entry->producer_epoch, 2);
    p = ms_write_big_endian(p, entry->sequence, 4);
    return ms_write_big_endian(p, records->record_count, 4);
}

/* What precedes a batch's records: the partition, the size and the batch's header. */
static uint8_t *ms_put_partition(uint8_t *p, const ms_entry *entry, int is_flexible)
{
    int64_t size = ms_entry_size(entry);
    p = ms_write_big_endian(p, entry->partition->index, 4);
    p = is_flexible ? ms_write_uvarint(p, (uint64_t)size + 1) : ms_write_big_endian(p, size, 4);
    return ms_put_batch_header(p, entry);
}

static void ms_add_vector(ms_outgoing *out, void *data, int64_t size)
{
    out->vectors[out->vector_count].iov_base = data;
    out->vectors[out->vector_count++].iov_len = (size_t)size;
    out->bytes += size;
}

/* Memory for the frame of a request; without it NULL, and no frame holds the batches. */
static ms_outgoing *ms_frame_new(const ms_request *request)
{
    const ms_route *route = &request->entries[0]->partition->route;
    int64_t copied = 4 + route->head_size + 16 + request->count * (MS_HEADER_SIZE + 16)
        + (int64_t)sizeof(void *) * request->count;
    ms_outgoing *out = ms_outgoing_new(2 * request->count + 1, 0, copied);
    if (!out)
        for (int i = 0; i < request->count; i++)
            ms_entry_unpin(request->entries[i]);
    return out;
}

/* Under `spin`: the frame of a request but for the checksums. The records stay where they are. */
static ms_outgoing *ms_frame_make(const ms_request *request)
{
    ms_outgoing *out = ms_frame_new(request);
    if (!out)
        return NULL;
    const ms_route *route = &request->entries[0]->partition->route;
    int is_flexible = request->version >= MS_PRODUCE_FLEXIBLE_FROM;
    ms_entry **kept = (ms_entry **)(out->vectors + 2 * request->count + 1);
    uint8_t *begin = (uint8_t *)(kept + request->count);
    uint8_t *start = begin;
    uint8_t *p = begin + 4;
    out->vector_count = 0;
    memcpy(p, route->head, (size_t)route->head_size);
    ms_write_big_endian(p + MS_CORRELATION_ID_AT - 4, request->correlation_id, 4);
    p += route->head_size;
    p = is_flexible ? ms_write_uvarint(p, (uint64_t)request->count + 1)
                    : ms_write_big_endian(p, request->count, 4);
    for (int i = 0; i < request->count; i++) {
        kept[i] = request->entries[i];
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
    out->kept_count = request->count;
    return out;
}

/* The checksum of a header, whose own is `crc`, and its records, part of which may be summed. */
static uint32_t ms_frame_sum(const ms_sink *sink, uint32_t crc, const ms_batch *records)
{
    if (!records->summed)
        return sink->checksum(crc, records->data, (size_t)records->length);
    uint32_t sum = sink->checksum(
        records->sum, records->data + records->summed,
        (size_t)(records->length - records->summed));
    return ms_crc_join(crc, sum, (uint64_t)records->length);
}

/* Without a lock, the batches being pinned: the checksums, which take a while. */
static void ms_frame_seal(const ms_sink *sink, ms_outgoing *out)
{
    for (int i = 0; i < out->kept_count; i++) {
        const struct iovec *head = &out->vectors[2 * i];
        uint8_t *header = (uint8_t *)head->iov_base + head->iov_len - MS_HEADER_SIZE;
        uint32_t crc = sink->checksum(0, header + MS_CRC_END, MS_HEADER_SIZE - MS_CRC_END);
        crc = ms_frame_sum(sink, crc, ((ms_entry **)out->kept)[i]->records);
        ms_write_big_endian(header + MS_CRC_AT, crc, 4);
    }
}

/* ---- sending, without `spin` ---- */

/* What is needed of a request once the Sender may free it. */
typedef struct {
    int64_t connection_id;
    int32_t correlation_id;
    int version;
} ms_request_id;

/* The Sender hears of a request in any case; one that could not be sent counts as lost. */
static void ms_request_send(ms_sink *sink, ms_request_id request, ms_outgoing *out)
{
    ms_selector *selector = sink->selector;
    ms_event *event = ms_event_new(MS_DISPATCHED, request.connection_id, 0);
    pthread_mutex_lock(&selector->lock);
    ms_connection *connection = ms_connection_find(selector, request.connection_id);
    int is_open = connection && connection->state == MS_READY;
    if (event) {
        event->correlation_id = request.correlation_id;
        event->sent_ms = ms_monotonic_ms();
        ms_events_add(&selector->events, event);
        /* An answer will wake poll(), soon as a rule: one awakening instead of two. */
        if (is_open && sink->expects_answers)
            ms_announce_later(selector, event->sent_ms);
        else
            ms_announce(selector);
    }
    if (out && (!is_open || !event)) {
        ms_outgoing_done(selector, out);
    } else if (out) {
        if (sink->expects_answers)
            connection->driver_in_flight++;
        connection->driver_versions[request.correlation_id % MS_DRIVER_IN_FLIGHT_MAX] =
            (uint8_t)request.version;
        ms_queue(connection, out);
        ms_flush(selector, connection);
    }
    if ((!out || !event) && is_open) {
        ms_connection_note(connection, ENOMEM);
        ms_connection_fail(selector, connection);
    }
    pthread_mutex_unlock(&selector->lock);
}

/* With `sending`: send what is due; when the next will be. Whoever holds the queues, or is near,
   wakes the loop when it has done, so then there is nothing to wait for: MS_NEVER. */
static int64_t ms_sink_serve(ms_sink *sink, int64_t now_ms, int is_loop)
{
    for (;;) {
        int64_t due_ms = MS_NEVER;
        ms_request *request = NULL;
        ms_outgoing *out = NULL;
        ms_request_id id = {0, 0, 0};
        ms_sink_lock(sink);
        if (sink->is_held)
            sink->is_awaited = 1;
        else if (!is_loop || !sink->is_sender_near)
            request = ms_sink_take(sink, now_ms, 0, &due_ms);
        if (request) {
            out = ms_frame_make(request);
            id = (ms_request_id){request->connection_id, request->correlation_id, request->version};
        } else if (is_loop) {
            sink->loop_due_ms = due_ms;
        } else {
            sink->is_sender_near = 0;
        }
        ms_sink_unlock(sink);
        if (!request)
            return due_ms;
        if (out)
            ms_frame_seal(sink, out);
        ms_request_send(sink, id, out);
    }
}

static int64_t ms_sink_run(ms_driver *driver, int64_t now_ms)
{
    ms_sink *sink = (ms_sink *)driver;
    pthread_mutex_lock(&sink->sending);
    int64_t next_ms = ms_sink_serve(sink, now_ms, 1);
    pthread_mutex_unlock(&sink->sending);
    return next_ms;
}

/* An answer makes room; whatever is not plain success suspends the connection for the sink, until
   the Sender has looked at it. */
static void ms_sink_answered(
    ms_driver *driver, ms_connection *connection, const uint8_t *frame, int64_t size)
{
    ms_sink *sink = (ms_sink *)driver;
    int place = (int)(ms_read_big_endian(frame, 4) % MS_DRIVER_IN_FLIGHT_MAX);
    pthread_mutex_lock(&sink->selector->lock);
    connection->driver_in_flight--;
    if (ms_read_produced(frame, size, connection->driver_versions[place], NULL, 0) < 0)
        connection->is_suspended = 1;
    pthread_mutex_unlock(&sink->selector->lock);
}

void ms_sink_init(ms_sink *sink, uint32_t (*checksum)(uint32_t, const uint8_t *, size_t))
{
    memset(sink, 0, sizeof *sink);
    pthread_mutex_init(&sink->sending, NULL);
    sink->driver.run = ms_sink_run;
    sink->driver.answered = ms_sink_answered;
    sink->driver.first_id = MS_FIRST_SINK_ID;
    sink->driver.end_id = MS_END_SINK_ID;
    sink->checksum = checksum;
    sink->next_id = MS_FIRST_SINK_ID;
    sink->expects_answers = 1;
    sink->loop_due_ms = MS_NEVER;
    sink->sent_end = &sink->sent;
}

void ms_sink_end(ms_sink *sink)
{
    pthread_mutex_destroy(&sink->sending);
}

void ms_sink_wake_loop(ms_sink *sink)
{
    if (sink->selector)
        ms_drive(sink->selector);
}

void ms_sink_send(ms_sink *sink)
{
    pthread_mutex_lock(&sink->sending);
    int64_t due_ms = ms_sink_serve(sink, ms_monotonic_ms(), 0);
    pthread_mutex_unlock(&sink->sending);
    ms_sink_lock(sink);
    int is_loop_late = due_ms < sink->loop_due_ms;
    ms_sink_unlock(sink);
    if (is_loop_late)
        ms_sink_wake_loop(sink);
}

int ms_sink_resume(ms_sink *sink, int64_t connection_id)
{
    int is_open = 0;
    pthread_mutex_lock(&sink->selector->lock);
    ms_connection *connection = ms_connection_find(sink->selector, connection_id);
    if (connection && connection->state == MS_READY) {
        is_open = 1;
        connection->is_suspended = 0;
    }
    pthread_mutex_unlock(&sink->selector->lock);
    return is_open;
}
