/* The loop that fills a batch from Arrow rows. `BatchWriter` calls it, on the caller's thread and
   mostly without the GIL; a writer is used by one thread at a time. Plain version:
   records/plain/writing.py. */

#include "codec/batch.h"

void ms_batch_reset(ms_batch *batch)
{
    batch->length = 0;
    batch->summed = 0;
    batch->sum = 0;
    batch->record_count = 0;
    batch->base_timestamp = batch->has_fixed_base ? batch->fixed_base : -1;
    batch->max_timestamp = -1;
    batch->last_offset_delta = -1;
}

int ms_batch_reserve(ms_batch *batch, int64_t length)
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

static int ms_batch_add_row(
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

/* As ms_string_at, of a plain source. */
static inline int64_t ms_plain_at(const ms_source *source, int64_t row, const uint8_t **data)
{
    if (source->layout <= MS_NULLS)
        return MS_NULL;
    int64_t start = ms_int32_at(source->values, source->first + row);
    *data = source->bytes + start;
    return ms_int32_at(source->values, source->first + row + 1) - start;
}

/* As ms_batch_add_rows, but it leaves the first row of a batch, and a row that does not fit or is
   wrong, to be looked at closely. Most of a row's cost elsewhere is asking what kind it is of. */
static void ms_batch_add_plain_rows(
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

int ms_batch_add_rows(
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
