/* See scatter.h. */

#include "client/scatter.h"

#include <string.h>

#include "codec/murmur2.h"

/* The varints of a record at their longest: lengths of itself, key and value, both deltas; the
   attributes and the number of headers. */
#define MS_SCATTER_OVERHEAD_MAX (4 * 5 + 10 + 2)
/* Rows after which the checksums go on, while what they cover is in a cache. */
#define MS_SCATTER_BLOCK 1024
/* How far ahead memory is asked for. The rows come from one place and go to many, which the
   processor foresees only in part. */
#define MS_SCATTER_AHEAD 1024
#define MS_SCATTER_ROOM_AHEAD 512

static inline int ms_unsigned_size(uint64_t n)
{
    if (n < 128)
        return 1;
    return n < 16384 ? 2 : (63 - __builtin_clzll(n)) / 7 + 1;
}

/* A copy of a few bytes without a call: parts of 16, the last of which may overlap. */
static inline uint8_t *ms_copy_short(uint8_t *to, const uint8_t *from, size_t size)
{
    if (size > 256) {
        memcpy(to, from, size);
    } else if (size >= 16) {
        for (size_t i = 0; i + 16 < size; i += 16)
            memcpy(to + i, from + i, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        uint64_t head, tail;
        memcpy(&head, from, 8);
        memcpy(&tail, from + size - 8, 8);
        memcpy(to, &head, 8);
        memcpy(to + size - 8, &tail, 8);
    } else {
        for (size_t i = 0; i < size; i++)
            to[i] = from[i];
    }
    return to + size;
}

int ms_can_scatter(const ms_input *input)
{
    return ms_has_plain_rows(input) && input->key.layout == MS_OFFSETS_32
        && input->value.layout == MS_OFFSETS_32 && input->partition.layout == MS_ABSENT;
}

void ms_target_begin(ms_target *target, ms_batch *batch, const ms_scatter *scatter)
{
    int64_t delta = 0;
    int64_t size_max = scatter->size_limit - MS_HEADER_SIZE;
    memset(target, 0, sizeof *target);
    target->batch = batch;
    if (!batch || !batch->record_count || batch->last_offset_delta > INT32_MAX / 2
        || ms_batch_is_too_far(batch, scatter->timestamp, &delta))
        return;
    if (size_max > batch->capacity)
        size_max = batch->capacity;
    target->at = batch->data + batch->length;
    target->end = batch->data + size_max;
    target->offset = ms_zigzag(batch->last_offset_delta + 1);
    target->delta = ms_zigzag(delta);
}

int64_t ms_target_end(ms_target *target, int64_t timestamp)
{
    ms_batch *batch = target->batch;
    if (!target->at || target->at == batch->data + batch->length)
        return 0;
    int64_t last = ms_unzigzag(target->offset) - 1;
    int64_t count = last - batch->last_offset_delta;
    batch->length = target->at - batch->data;
    batch->record_count += count - 1;
    ms_batch_count(batch, timestamp, last);
    return count;
}

/* Up to three bytes without a loop, as nearly all are. */
static inline uint8_t *ms_put_short(uint8_t *p, uint64_t n)
{
    if (n < 128) {
        *p = (uint8_t)n;
        return p + 1;
    }
    if (n < 16384) {
        p[0] = (uint8_t)(n | 128);
        p[1] = (uint8_t)(n >> 7);
        return p + 2;
    }
    return ms_write_uvarint(p, n);
}

/* A copy without a call: the last part may overlap the one before. */
static inline void ms_copy_value(uint8_t *to, const uint8_t *from, size_t size)
{
    typedef struct { uint8_t bytes[64]; } line;
    if (size > 256 || size < 64) {
        ms_copy_short(to, from, size);
        return;
    }
    for (size_t i = 0; i + 64 < size; i += 64)
        *(line *)(to + i) = *(const line *)(from + i);
    *(line *)(to + size - 64) = *(const line *)(from + size - 64);
}

/* 1 if all rows up to `stop` are in. */
static int ms_scatter_block(ms_scatter *scatter, int64_t stop)
{
    const ms_source *keys = &scatter->input->key;
    const ms_source *values = &scatter->input->value;
    const int32_t *key_ends = (const int32_t *)keys->values + keys->first;
    const int32_t *value_ends = (const int32_t *)values->values + values->first;
    const uint8_t *key_bytes = keys->bytes;
    const uint8_t *value_bytes = values->bytes;
    uint32_t count = scatter->count;
    uint32_t mask = count & (count - 1) ? 0 : count - 1;
    for (; scatter->row < stop; scatter->row++) {
        int64_t row = scatter->row;
        int64_t key_at = key_ends[row];
        int64_t key_length = key_ends[row + 1] - key_at;
        int64_t value_at = value_ends[row];
        int64_t value_length = value_ends[row + 1] - value_at;
        if (key_at < 0 || key_length < 0 || value_at < 0 || value_length < 0)
            return 0;
        const uint8_t *key = key_bytes + key_at;
        const uint8_t *value = value_bytes + value_at;
        uint32_t hash = ms_murmur2(key, (size_t)key_length) & UINT32_C(0x7fffffff);
        uint32_t place = mask || count == 1 ? hash & mask : hash % count;
        ms_target *target = &scatter->targets[place];
        uint8_t *p = target->at;
        if (!p || target->end - p < MS_SCATTER_OVERHEAD_MAX + key_length + value_length) {
            scatter->partition = place;
            return 0;
        }
        uint64_t offset = target->offset;
        uint64_t delta = target->delta;
        __builtin_prefetch(value + MS_SCATTER_AHEAD);
        __builtin_prefetch(value + MS_SCATTER_AHEAD + MS_CACHE_LINE);
        __builtin_prefetch(p + MS_SCATTER_ROOM_AHEAD, 1);
        __builtin_prefetch(p + MS_SCATTER_ROOM_AHEAD + MS_CACHE_LINE, 1);
        uint64_t key_size = (uint64_t)key_length << 1;
        uint64_t value_size = (uint64_t)value_length << 1;
        uint64_t size = 2 + (uint64_t)ms_unsigned_size(delta)
            + (uint64_t)ms_unsigned_size(offset) + (uint64_t)ms_unsigned_size(key_size)
            + (uint64_t)ms_unsigned_size(value_size) + (uint64_t)(key_length + value_length);
        p = ms_put_short(p, size << 1);
        *p++ = 0;
        p = ms_put_short(p, delta);
        p = ms_put_short(p, offset);
        p = ms_put_short(p, key_size);
        ms_copy_short(p, key, (size_t)key_length);
        p = ms_put_short(p + key_length, value_size);
        ms_copy_value(p, value, (size_t)value_length);
        p += value_length;
        *p++ = 0;
        target->at = p;
        target->offset = offset + 2;
    }
    return 1;
}

static void ms_target_sum(ms_target *target, const ms_scatter *scatter)
{
    ms_batch *batch = target->batch;
    if (!target->at)
        return;
    const uint8_t *from = batch->data + batch->summed;
    batch->sum = scatter->checksum(batch->sum, from, (size_t)(target->at - from));
    batch->summed = target->at - batch->data;
}

void ms_scatter_rows(ms_scatter *scatter)
{
    int goes_on = 1;
    scatter->partition = -1;
    while (goes_on && scatter->row < scatter->stop) {
        int64_t stop = scatter->row + MS_SCATTER_BLOCK;
        goes_on = ms_scatter_block(scatter, stop < scatter->stop ? stop : scatter->stop);
        for (uint32_t i = 0; i < scatter->count; i++)
            ms_target_sum(&scatter->targets[i], scatter);
    }
}
