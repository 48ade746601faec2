/* The records of one batch as they are written: a buffer that grows, what the header will say of
   it, and the loop that fills it from Arrow rows. Needs no GIL. */

#ifndef MILLSTREAM_BATCH_H
#define MILLSTREAM_BATCH_H

#include <Python.h>
#include <stdint.h>

#include "arrow/input.h"
#include "wire.h"

#define MS_BODY_SIZE_MAX (INT32_MAX - MS_HEADER_SIZE)

/* Further than the outcomes of ms_read_row. */
enum ms_batch_outcome {
    MS_BATCH_FULL = 100, MS_BATCH_TOO_LARGE, MS_BATCH_TOO_MANY, MS_BATCH_TOO_FAR,
    MS_BATCH_NO_MEMORY, MS_BATCH_NO_ROW
};

typedef struct {
    uint8_t *data;
    int64_t length;
    int64_t capacity;
    int64_t hint;
    int64_t record_count;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t last_offset_delta;
    int64_t fixed_base;
    int has_fixed_base; /* else the first record's timestamp is the base */
    uint32_t sum; /* the CRC of the first `summed` bytes, taken while they were near */
    int64_t summed;
} ms_batch;

/* Rows still to be written, and what the error for one of them must say. */
typedef struct {
    int64_t row;
    int64_t stop;
    int64_t size_limit;
    int64_t default_timestamp;
    int64_t timestamp;
    int64_t length;
} ms_rows_job;

static inline void ms_batch_reset(ms_batch *batch)
{
    batch->length = 0;
    batch->summed = 0;
    batch->sum = 0;
    batch->record_count = 0;
    batch->base_timestamp = batch->has_fixed_base ? batch->fixed_base : -1;
    batch->max_timestamp = -1;
    batch->last_offset_delta = -1;
}

/* Room for `length` bytes in all, or 0. */
static inline int ms_batch_reserve(ms_batch *batch, int64_t length)
{
    if (length <= batch->capacity)
        return 1;
    int64_t capacity = batch->capacity * 2;
    if (capacity < length)
        capacity = length;
    if (capacity < batch->hint)
        capacity = batch->hint;
    void *data = PyMem_RawRealloc(batch->data, (size_t)capacity);
    if (!data)
        return 0;
    batch->data = (uint8_t *)data;
    batch->capacity = capacity;
    return 1;
}

static inline void ms_batch_count(ms_batch *batch, int64_t timestamp, int64_t offset_delta)
{
    if (batch->record_count == 0) {
        batch->max_timestamp = timestamp;
        if (!batch->has_fixed_base)
            batch->base_timestamp = timestamp;
    } else if (timestamp > batch->max_timestamp) {
        batch->max_timestamp = timestamp;
    }
    batch->record_count++;
    batch->last_offset_delta = offset_delta;
}

/* Whether the delta, which is 0 for the record that sets the base, does not fit. */
static inline int ms_batch_is_too_far(const ms_batch *batch, int64_t timestamp, int64_t *delta)
{
    *delta = 0;
    return (batch->record_count || batch->has_fixed_base)
        && __builtin_sub_overflow(timestamp, batch->base_timestamp, delta);
}

static inline int ms_batch_add_row(
    ms_batch *batch, const ms_input *input, ms_rows_job *job, int64_t number)
{
    ms_row row;
    int64_t delta;
    int64_t offset = batch->last_offset_delta + 1;
    int outcome = ms_read_row(input, number, &row);
    if (outcome != MS_ROW_DONE)
        return outcome;
    job->timestamp = row.has_timestamp ? row.timestamp : job->default_timestamp;
    if (ms_batch_is_too_far(batch, job->timestamp, &delta))
        return MS_BATCH_TOO_FAR;
    if (offset > INT32_MAX)
        return MS_BATCH_TOO_MANY;
    int64_t record_length = ms_record_length(
        delta, offset, row.key_length, row.value_length, row.header_count, row.headers_size);
    job->length = batch->length + ms_varint_size(record_length) + record_length;
    if (job->length > MS_BODY_SIZE_MAX)
        return MS_BATCH_TOO_LARGE;
    if (batch->record_count && job->length + MS_HEADER_SIZE > job->size_limit)
        return MS_BATCH_FULL;
    if (!ms_batch_reserve(batch, job->length))
        return MS_BATCH_NO_MEMORY;
    uint8_t *p = ms_write_record(
        batch->data + batch->length, record_length, delta, offset, row.key, row.key_length,
        row.value, row.value_length, row.header_count);
    if (row.header_count)
        ms_write_row_headers(p, input, &row);
    batch->length = job->length;
    ms_batch_count(batch, job->timestamp, offset);
    return MS_ROW_DONE;
}

/* Picked rows lie too far apart for the processor to guess the next: it is told of those that come
   soon. */
#define MS_ROWS_AHEAD 12

static inline void ms_fetch_ahead(
    const ms_input *input, const ms_rows_job *job, const int32_t *picked)
{
    int64_t place = job->row + MS_ROWS_AHEAD;
    if (place < job->stop && picked[place] >= 0 && picked[place] < input->row_count) {
        ms_prefetch_string(&input->key, picked[place]);
        ms_prefetch_string(&input->value, picked[place]);
    }
}

/* ---- rows of the plainest kind ---- */

static inline int ms_is_plain_source(const ms_source *source)
{
    return source->layout <= MS_NULLS || (source->layout == MS_OFFSETS_32 && !source->validity);
}

/* Keys and values without nulls, or none at all; no headers, and one timestamp for all. */
static inline int ms_has_plain_rows(const ms_input *input)
{
    return ms_is_plain_source(&input->key) && ms_is_plain_source(&input->value)
        && input->headers.layout <= MS_NULLS && input->timestamp.layout != MS_FIXED;
}

/* As ms_string_at, of a plain source. */
static inline int64_t ms_plain_at(const ms_source *source, int64_t row, const uint8_t **data)
{
    if (source->layout <= MS_NULLS)
        return MS_NULL;
    const int32_t *ends = (const int32_t *)source->values + source->first + row;
    *data = source->bytes + ends[0];
    return ends[0] >= 0 && ends[1] >= ends[0] ? (int64_t)ends[1] - ends[0] : MS_UNSOUND;
}

/* As ms_batch_add_rows, but it leaves the first row of a batch, and a row that does not fit or is
   wrong, to be looked at closely. Most of a row's cost elsewhere is asking what kind it is of. */
static inline void ms_batch_add_plain_rows(
    ms_batch *batch, const ms_input *input, ms_rows_job *job, const int32_t *picked)
{
    const uint8_t *key = NULL;
    const uint8_t *value = NULL;
    int64_t delta;
    int64_t size_max = job->size_limit - MS_HEADER_SIZE;
    if (!batch->record_count || ms_batch_is_too_far(batch, job->default_timestamp, &delta))
        return;
    if (size_max > batch->capacity)
        size_max = batch->capacity;
    for (; job->row < job->stop; job->row++) {
        int64_t number = picked ? picked[job->row] : job->row;
        int64_t offset = batch->last_offset_delta + 1;
        if (number < 0 || number >= input->row_count || offset > INT32_MAX)
            return;
        if (picked)
            ms_fetch_ahead(input, job, picked);
        int64_t key_length = ms_plain_at(&input->key, number, &key);
        int64_t value_length = ms_plain_at(&input->value, number, &value);
        if (key_length == MS_UNSOUND || value_length == MS_UNSOUND)
            return;
        int64_t record_length = ms_record_length(delta, offset, key_length, value_length, 0, 0);
        int64_t length = batch->length + ms_varint_size(record_length) + record_length;
        if (length > size_max)
            return;
        ms_write_record(
            batch->data + batch->length, record_length, delta, offset, key, key_length, value,
            value_length, 0);
        batch->length = length;
        ms_batch_count(batch, job->default_timestamp, offset);
    }
}

/* Until the rows are written, the batch is full (unless it is empty, which is never full), or one
   is wrong; job->row tells which is next. With `picked`, job->row and job->stop are places in it,
   and what is there are the rows. */
static inline int ms_batch_add_rows(
    ms_batch *batch, const ms_input *input, ms_rows_job *job, const int32_t *picked)
{
    int is_plain = ms_has_plain_rows(input);
    for (; job->row < job->stop; job->row++) {
        if (is_plain)
            ms_batch_add_plain_rows(batch, input, job, picked);
        if (job->row == job->stop)
            break;
        int64_t number = picked ? picked[job->row] : job->row;
        if (number < 0 || number >= input->row_count)
            return MS_BATCH_NO_ROW;
        if (picked)
            ms_fetch_ahead(input, job, picked);
        int outcome = ms_batch_add_row(batch, input, job, number);
        if (outcome != MS_ROW_DONE)
            return outcome;
    }
    return MS_ROW_DONE;
}

#endif
