/* Arrow columns as the source of records: one row at a time, in place.

   ms_bind_input checks an array once, before any value is used; readers trust an ms_input. The
   interface does not tell how large a buffer of bytes is, so the last offset of a column is believed:
   every other must lie between 0 and that one, and none may fall. Lists must lie inside their
   entries, views inside their buffers. An ms_input is valid as long as the ArrowArray it was bound
   to. */

#ifndef MILLSTREAM_ARROW_INPUT_H
#define MILLSTREAM_ARROW_INPUT_H

#include <stdint.h>
#include <string.h>

#include "arrow/abi.h"
#include "wire.h"

/* arrow_schema.py, Layout. */
enum ms_layout { MS_ABSENT, MS_NULLS, MS_OFFSETS_32, MS_OFFSETS_64, MS_VIEWS, MS_FIXED };

enum ms_row_outcome {
    MS_ROW_DONE, MS_ROW_NULL_HEADER, MS_ROW_NULL_HEADER_KEY, MS_ROW_TIMESTAMP_OVERFLOW
};

/* What came of binding. Behind the first two: columns with a value that leaves its data, in the order
   in which they are checked. */
enum ms_bind_outcome {
    MS_BOUND, MS_BAD_SHAPE, MS_BAD_KEY, MS_BAD_VALUE, MS_BAD_HEADERS, MS_BAD_HEADER_KEY,
    MS_BAD_HEADER_VALUE
};

#define MS_NULL (-1)
#define MS_VIEW_SIZE 16
#define MS_VIEW_INLINE_MAX 12
#define MS_CACHE_LINE 64
#define MS_PREFETCH_MAX 256 /* of one string; of a longer one the processor sees itself what comes */

/* Where a column is: the child of the schema, and how its values lie. */
typedef struct {
    int64_t child;
    int layout;
    int64_t width;
} ms_place;

typedef struct {
    ms_place key;
    ms_place value;
    ms_place timestamp;
    ms_place partition;
    ms_place headers;
    ms_place header_key;
    ms_place header_value;
    int64_t timestamp_multiplier;
    int64_t timestamp_divisor;
} ms_plan;

typedef struct {
    int layout;
    int64_t width;
    int64_t first; /* the place of row 0: all offsets on the way down, added up */
    int64_t end; /* the place behind the last value that the array has */
    const uint8_t *validity;
    const uint8_t *values; /* numbers, offsets or views */
    const uint8_t *bytes;
    const void **view_buffers;
    const int64_t *view_buffer_sizes;
    int64_t view_buffer_count;
} ms_source;

typedef struct {
    int64_t row_count;
    ms_source key;
    ms_source value;
    ms_source timestamp;
    ms_source partition;
    ms_source headers;
    int64_t entry_count;
    int64_t entry_first;
    const uint8_t *entry_validity;
    ms_source header_key;
    ms_source header_value;
    int64_t timestamp_multiplier;
    int64_t timestamp_divisor;
} ms_input;

typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    int64_t key_length;
    int64_t value_length;
    int64_t timestamp;
    int64_t first_header;
    int64_t header_count;
    int64_t headers_size;
    int has_timestamp;
} ms_row;

/* An ms_bind_outcome; for a value that leaves its data *bad tells which. */
int ms_bind_input(
    ms_input *input, const ms_plan *plan, const struct ArrowArray *array, int64_t *bad);

/* ---- one value ---- */

static inline int ms_is_null(const uint8_t *validity, int64_t at)
{
    return validity && !(validity[at >> 3] >> (at & 7) & 1);
}

/* Buffers come from others, who may not have aligned them. */
static inline int64_t ms_int32_at(const uint8_t *values, int64_t at)
{
    int32_t value;
    memcpy(&value, values + 4 * at, sizeof value);
    return value;
}

static inline int64_t ms_int64_at(const uint8_t *values, int64_t at)
{
    int64_t value;
    memcpy(&value, values + 8 * at, sizeof value);
    return value;
}

static inline int64_t ms_offset_at(const ms_source *source, int64_t at)
{
    return source->layout == MS_OFFSETS_32 ? ms_int32_at(source->values, at)
                                           : ms_int64_at(source->values, at);
}

/* Length, prefix, buffer and offset of a view; of a short one the string is behind the length. */
typedef struct {
    int32_t length, prefix, buffer, offset;
} ms_view_parts;

static inline ms_view_parts ms_view_at(const ms_source *source, int64_t at)
{
    ms_view_parts view;
    memcpy(&view, source->values + MS_VIEW_SIZE * at, sizeof view);
    return view;
}

/* The length of a string and where it is; MS_NULL if it is null. */
static inline int64_t ms_string_at(const ms_source *source, int64_t row, const uint8_t **data)
{
    int64_t at = source->first + row;
    if (source->layout <= MS_NULLS || ms_is_null(source->validity, at))
        return MS_NULL;
    if (source->layout == MS_VIEWS) {
        ms_view_parts view = ms_view_at(source, at);
        *data = view.length <= MS_VIEW_INLINE_MAX
            ? source->values + MS_VIEW_SIZE * at + 4
            : (const uint8_t *)source->view_buffers[view.buffer] + view.offset;
        return view.length;
    }
    if (source->layout == MS_FIXED) {
        *data = source->values + at * source->width;
        return source->width;
    }
    int64_t start = ms_offset_at(source, at);
    *data = source->bytes + start;
    return ms_offset_at(source, at + 1) - start;
}

/* Have a string, or its beginning if it is long, come into the cache. Nothing is read of it, so an
   address that is wrong does no harm. */
static inline void ms_prefetch_string(const ms_source *source, int64_t row)
{
    const uint8_t *data = NULL;
    int64_t length = ms_string_at(source, row, &data);
    if (length > MS_PREFETCH_MAX)
        length = MS_PREFETCH_MAX;
    for (int64_t at = 0; at < length; at += MS_CACHE_LINE)
        __builtin_prefetch(data + at);
    if (length > 0)
        __builtin_prefetch(data + length - 1);
}

/* Milliseconds, rounded down. */
static inline int ms_timestamp_at(const ms_input *input, int64_t row, ms_row *out)
{
    int64_t at = input->timestamp.first + row;
    out->has_timestamp =
        input->timestamp.layout == MS_FIXED && !ms_is_null(input->timestamp.validity, at);
    if (!out->has_timestamp)
        return 1;
    int64_t time = ms_int64_at(input->timestamp.values, at);
    if (input->timestamp_divisor != 1)
        time = time / input->timestamp_divisor - (time % input->timestamp_divisor < 0);
    return !__builtin_mul_overflow(time, input->timestamp_multiplier, &out->timestamp);
}

/* -1 for null. */
static inline int64_t ms_partition_at(const ms_input *input, int64_t row, int *is_null)
{
    int64_t at = input->partition.first + row;
    *is_null = input->partition.layout != MS_FIXED || ms_is_null(input->partition.validity, at);
    if (*is_null)
        return -1;
    int16_t narrow;
    switch (input->partition.width) {
    case 1: return ((const int8_t *)input->partition.values)[at];
    case 2: memcpy(&narrow, input->partition.values + 2 * at, sizeof narrow); return narrow;
    case 4: return ms_int32_at(input->partition.values, at);
    default: return ms_int64_at(input->partition.values, at);
    }
}

/* ---- one row ---- */

/* Which entries are the row's headers, and how many bytes they take in a record. */
int ms_measure_headers(const ms_input *input, int64_t row, ms_row *out);

static inline int ms_read_row(const ms_input *input, int64_t row, ms_row *out)
{
    out->key = out->value = NULL;
    if (!ms_timestamp_at(input, row, out))
        return MS_ROW_TIMESTAMP_OVERFLOW;
    out->key_length = ms_string_at(&input->key, row, &out->key);
    out->value_length = ms_string_at(&input->value, row, &out->value);
    out->first_header = 0;
    out->header_count = 0;
    out->headers_size = 0;
    return input->headers.layout <= MS_NULLS ? MS_ROW_DONE : ms_measure_headers(input, row, out);
}

/* The headers of a row that ms_read_row has measured. */
uint8_t *ms_write_row_headers(uint8_t *p, const ms_input *input, const ms_row *row);

#endif
