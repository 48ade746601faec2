/* The records of one batch as they are written: a buffer that grows, and what the header will say of
   it. */

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

void ms_batch_reset(ms_batch *batch);

/* Room for `length` bytes in all, or 0. */
int ms_batch_reserve(ms_batch *batch, int64_t length);

/* Until the rows are written, the batch is full (an empty one never is), or one is wrong; job->row
   tells which is next. With `picked`, job->row and job->stop are places in it, and what is there are
   the rows. */
int ms_batch_add_rows(
    ms_batch *batch, const ms_input *input, ms_rows_job *job, const int32_t *picked);

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

#endif
