/* Arrow columns as the source of records: one row at a time, in place.

   Whoever exports an array vouches for its buffers, of whose sizes the interface says nothing.
   What can be checked is: offsets must rise, entries must be inside their child, views inside
   their buffers. An ms_input is valid as long as the ArrowArray it was bound to. */

#ifndef MILLSTREAM_ARROW_INPUT_H
#define MILLSTREAM_ARROW_INPUT_H

#include <stdint.h>
#include <string.h>

#include "arrow/abi.h"
#include "wire.h"

/* arrow_schema.py, Layout. */
enum ms_layout { MS_ABSENT, MS_NULLS, MS_OFFSETS_32, MS_OFFSETS_64, MS_VIEWS, MS_FIXED };

enum ms_row_outcome {
    MS_ROW_DONE, MS_ROW_UNSOUND_KEY, MS_ROW_UNSOUND_VALUE, MS_ROW_UNSOUND_HEADERS,
    MS_ROW_NULL_HEADER, MS_ROW_NULL_HEADER_KEY, MS_ROW_TIMESTAMP_OVERFLOW
};

#define MS_NULL (-1)
#define MS_UNSOUND (-2)
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

/* ---- binding ---- */

static inline const uint8_t *ms_validity(const struct ArrowArray *array)
{
    return array->null_count && array->n_buffers > 0 ? (const uint8_t *)array->buffers[0] : NULL;
}

static int ms_buffers_wanted(int layout)
{
    switch (layout) {
    case MS_OFFSETS_32:
    case MS_OFFSETS_64:
    case MS_VIEWS: return 3;
    case MS_FIXED: return 2;
    default: return 0;
    }
}

/* `first` and `count`: which values of the array there must be. 0 if they are not there. */
static int ms_bind(
    ms_source *source, const ms_place *place, const struct ArrowArray *array, int64_t first,
    int64_t count)
{
    source->layout = place->layout;
    source->width = place->width;
    if (place->layout == MS_ABSENT || place->layout == MS_NULLS)
        return 1;
    if (!array || array->offset < 0 || array->length < first + count
        || array->n_buffers < ms_buffers_wanted(place->layout))
        return 0;
    source->first = array->offset + first;
    source->validity = ms_validity(array);
    source->values = (const uint8_t *)array->buffers[1];
    if (place->layout == MS_VIEWS) {
        source->view_buffers = array->buffers + 2;
        source->view_buffer_count = array->n_buffers - 3;
        source->view_buffer_sizes = (const int64_t *)array->buffers[array->n_buffers - 1];
    } else if (place->layout != MS_FIXED) {
        source->bytes = (const uint8_t *)array->buffers[2];
    }
    return count == 0 || source->values != NULL || (place->layout == MS_FIXED && !place->width);
}

static const struct ArrowArray *ms_child(const struct ArrowArray *array, int64_t child)
{
    return child >= 0 && child < array->n_children ? array->children[child] : NULL;
}

/* Lists have two buffers, not three as strings have. */
static inline int ms_bind_headers(
    ms_input *input, const ms_plan *plan, const struct ArrowArray *lists, int64_t first)
{
    ms_source *source = &input->headers;
    source->layout = plan->headers.layout;
    if (source->layout == MS_ABSENT || source->layout == MS_NULLS)
        return 1;
    if (!lists || lists->offset < 0 || lists->length < first + input->row_count
        || lists->n_buffers < 2 || lists->n_children != 1)
        return 0;
    const struct ArrowArray *entries = lists->children[0];
    if (entries->offset < 0 || entries->length < 0)
        return 0;
    source->first = lists->offset + first;
    source->validity = ms_validity(lists);
    source->values = (const uint8_t *)lists->buffers[1];
    input->entry_count = plan->header_key.layout == MS_ABSENT ? 0 : entries->length;
    input->entry_first = entries->offset;
    input->entry_validity = ms_validity(entries);
    return (input->row_count == 0 || source->values)
        && ms_bind(&input->header_key, &plan->header_key,
                   ms_child(entries, plan->header_key.child), entries->offset, input->entry_count)
        && ms_bind(&input->header_value, &plan->header_value,
                   ms_child(entries, plan->header_value.child), entries->offset,
                   input->entry_count);
}

/* 0 when the array does not have the shape that the plan was made for. */
static inline int ms_bind_input(ms_input *input, const ms_plan *plan, const struct ArrowArray *array)
{
    int64_t first = array->offset;
    int64_t count = array->length;
    memset(input, 0, sizeof *input);
    if (first < 0 || count < 0)
        return 0;
    input->row_count = count;
    input->timestamp_multiplier = plan->timestamp_multiplier;
    input->timestamp_divisor = plan->timestamp_divisor;
    return ms_bind(&input->key, &plan->key, ms_child(array, plan->key.child), first, count)
        && ms_bind(&input->value, &plan->value, ms_child(array, plan->value.child), first, count)
        && ms_bind(&input->timestamp, &plan->timestamp,
                   ms_child(array, plan->timestamp.child), first, count)
        && ms_bind(&input->partition, &plan->partition,
                   ms_child(array, plan->partition.child), first, count)
        && ms_bind_headers(input, plan, ms_child(array, plan->headers.child), first);
}

/* ---- one value ---- */

static inline int ms_is_null(const uint8_t *validity, int64_t at)
{
    return validity && !(validity[at >> 3] >> (at & 7) & 1);
}

/* A pair of offsets that start no lower than 0 and do not fall. */
static inline int ms_range_at(const ms_source *source, int64_t at, int64_t *start, int64_t *end)
{
    if (source->layout == MS_OFFSETS_32) {
        *start = ((const int32_t *)source->values)[at];
        *end = ((const int32_t *)source->values)[at + 1];
    } else {
        *start = ((const int64_t *)source->values)[at];
        *end = ((const int64_t *)source->values)[at + 1];
    }
    return *start >= 0 && *end >= *start;
}

static int64_t ms_view_at(const ms_source *source, int64_t at, const uint8_t **data)
{
    int32_t part[4]; /* length, prefix, buffer, offset */
    memcpy(part, source->values + MS_VIEW_SIZE * at, sizeof part);
    if (part[0] < 0)
        return MS_UNSOUND;
    if (part[0] <= MS_VIEW_INLINE_MAX) {
        *data = source->values + MS_VIEW_SIZE * at + 4;
        return part[0];
    }
    if (part[2] < 0 || part[2] >= source->view_buffer_count || part[3] < 0
        || (int64_t)part[3] + part[0] > source->view_buffer_sizes[part[2]])
        return MS_UNSOUND;
    *data = (const uint8_t *)source->view_buffers[part[2]] + part[3];
    return part[0];
}

/* The length of a string and where it is; MS_NULL or MS_UNSOUND if it is not. */
static inline int64_t ms_string_at(const ms_source *source, int64_t row, const uint8_t **data)
{
    int64_t at = source->first + row;
    int64_t start, end;
    if (source->layout <= MS_NULLS || ms_is_null(source->validity, at))
        return MS_NULL;
    if (source->layout == MS_VIEWS)
        return ms_view_at(source, at, data);
    if (source->layout == MS_FIXED) {
        *data = source->values + at * source->width;
        return source->width;
    }
    if (!ms_range_at(source, at, &start, &end))
        return MS_UNSOUND;
    *data = source->bytes + start;
    return end - start;
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
    int64_t time = ((const int64_t *)input->timestamp.values)[at];
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
    switch (input->partition.width) {
    case 1: return ((const int8_t *)input->partition.values)[at];
    case 2: return ((const int16_t *)input->partition.values)[at];
    case 4: return ((const int32_t *)input->partition.values)[at];
    default: return ((const int64_t *)input->partition.values)[at];
    }
}

/* ---- one row ---- */

/* Which entries are the row's headers, and how many bytes they take in a record. */
static int ms_measure_headers(const ms_input *input, int64_t row, ms_row *out)
{
    int64_t at = input->headers.first + row;
    int64_t start, end;
    const uint8_t *data;
    if (ms_is_null(input->headers.validity, at))
        return MS_ROW_DONE;
    if (!ms_range_at(&input->headers, at, &start, &end) || end > input->entry_count)
        return MS_ROW_UNSOUND_HEADERS;
    out->first_header = start;
    out->header_count = end - start;
    for (int64_t i = start; i < end; i++) {
        if (ms_is_null(input->entry_validity, input->entry_first + i))
            return MS_ROW_NULL_HEADER;
        int64_t key_length = ms_string_at(&input->header_key, i, &data);
        int64_t value_length = ms_string_at(&input->header_value, i, &data);
        if (key_length == MS_NULL)
            return MS_ROW_NULL_HEADER_KEY;
        if (key_length == MS_UNSOUND || value_length == MS_UNSOUND)
            return MS_ROW_UNSOUND_HEADERS;
        out->headers_size += ms_bytes_size(key_length) + ms_bytes_size(value_length);
    }
    return MS_ROW_DONE;
}

static inline int ms_read_row(const ms_input *input, int64_t row, ms_row *out)
{
    out->key = out->value = NULL;
    if (!ms_timestamp_at(input, row, out))
        return MS_ROW_TIMESTAMP_OVERFLOW;
    if ((out->key_length = ms_string_at(&input->key, row, &out->key)) == MS_UNSOUND)
        return MS_ROW_UNSOUND_KEY;
    if ((out->value_length = ms_string_at(&input->value, row, &out->value)) == MS_UNSOUND)
        return MS_ROW_UNSOUND_VALUE;
    out->first_header = 0;
    out->header_count = 0;
    out->headers_size = 0;
    return input->headers.layout <= MS_NULLS ? MS_ROW_DONE : ms_measure_headers(input, row, out);
}

/* The headers of a row that ms_read_row has measured. */
static inline uint8_t *ms_write_row_headers(uint8_t *p, const ms_input *input, const ms_row *row)
{
    const uint8_t *data = NULL;
    for (int64_t i = row->first_header; i < row->first_header + row->header_count; i++) {
        int64_t length = ms_string_at(&input->header_key, i, &data);
        p = ms_write_bytes(p, data, length);
        length = ms_string_at(&input->header_value, i, &data);
        p = ms_write_bytes(p, data, length);
    }
    return p;
}

#endif
