/* Records as Arrow columns while they grow: buffers, bitmaps, and the rows of a batch put in.

   Rows are written once, straight into the buffers that Arrow will own. Growing uses Python's raw
   allocator, which needs no GIL. A failure half way is undone by restoring the counts, so what
   lies behind them is garbage and every write, of bitmaps too, sets each bit it stands for. */

#ifndef MILLSTREAM_ARROW_COLUMNS_H
#define MILLSTREAM_ARROW_COLUMNS_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "spare_memory.h"
#include "wire.h"

#define MS_BUFFER_SIZE_MIN 64

/* What came of appending a batch. */
enum ms_outcome { MS_DONE, MS_CORRUPT, MS_BEHIND_LAST, MS_NO_MEMORY, MS_COLUMN_FULL };

/* Columns whose bytes, or entries, Arrow counts in 32 bits. Names in arrow_builder.pyx. */
enum ms_column { MS_KEY, MS_VALUE, MS_HEADERS, MS_HEADER_KEY, MS_HEADER_VALUE };

typedef struct {
    uint8_t *data;
    int64_t size;
    int64_t capacity;
    int64_t hint; /* the first allocation: what the last finished one came to */
} ms_buffer;

/* Byte strings: where each ends, all of them in a row, and which are null. Without nulls the
   bitmap is not kept up. */
typedef struct {
    ms_buffer ends;
    ms_buffer bytes;
    ms_buffer validity;
    int64_t null_count;
} ms_strings;

typedef struct {
    int64_t row_count;
    int64_t header_count;
    ms_strings key;
    ms_strings value;
    ms_strings header_key;
    ms_strings header_value;
    ms_buffer header_ends;
    ms_buffer timestamp;
    ms_buffer offset;
    ms_buffer partition;
} ms_columns;

/* What to append, and what went wrong with it. */
typedef struct {
    const uint8_t *body;
    int64_t size;
    int64_t count;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t append_timestamp;
    int64_t from_offset;
    int64_t to_offset;
    int32_t partition;
    int has_append_timestamp;
    ms_fault fault;
    int64_t fault_index;
    int full_column;
} ms_append_job;

static inline int ms_reserve(ms_buffer *buffer, int64_t size)
{
    if (size <= buffer->capacity)
        return 1;
    int64_t capacity = buffer->capacity * 2;
    if (capacity < size)
        capacity = size;
    if (capacity < buffer->hint)
        capacity = buffer->hint;
    if (capacity < MS_BUFFER_SIZE_MIN)
        capacity = MS_BUFFER_SIZE_MIN;
    void *data = buffer->data ? NULL : ms_spare_take(capacity, &capacity);
    if (!data && !(data = PyMem_RawRealloc(buffer->data, (size_t)capacity)))
        return 0;
    buffer->data = (uint8_t *)data;
    buffer->capacity = capacity;
    return 1;
}

/* Offsets start with a zero, so that n strings have n + 1 of them, and none has one. */
static inline int ms_reserve_ends(ms_buffer *ends, int64_t count)
{
    int is_new = !ends->data;
    if (!ms_reserve(ends, 4 * (count + 1)))
        return 0;
    if (is_new)
        memset(ends->data, 0, 4);
    return 1;
}

static inline void ms_set_end(ms_buffer *ends, int64_t index, int64_t end)
{
    ((int32_t *)ends->data)[index + 1] = (int32_t)end;
}

/* ---- one string ---- */

static int ms_add_null(ms_strings *strings, int64_t index)
{
    if (!ms_reserve(&strings->validity, index / 8 + 1))
        return MS_NO_MEMORY;
    if (strings->null_count == 0)
        memset(strings->validity.data, 0xff, (size_t)(index / 8 + 1));
    else if (index % 8 == 0)
        strings->validity.data[index / 8] = 0;
    strings->validity.data[index / 8] &= (uint8_t)~(1 << index % 8);
    strings->null_count++;
    ms_set_end(&strings->ends, index, strings->bytes.size);
    return MS_DONE;
}

static inline int ms_mark_valid(ms_strings *strings, int64_t index)
{
    if (strings->null_count == 0)
        return 1;
    if (!ms_reserve(&strings->validity, index / 8 + 1))
        return 0;
    if (index % 8 == 0)
        strings->validity.data[index / 8] = 0;
    strings->validity.data[index / 8] |= (uint8_t)(1 << index % 8);
    return 1;
}

/* The ends are reserved by the caller, for many strings at once. */
static inline int ms_add_string(
    ms_strings *strings, int64_t index, const uint8_t *data, int32_t length)
{
    if (length < 0)
        return ms_add_null(strings, index);
    int64_t end = strings->bytes.size + length;
    if (end > INT32_MAX)
        return MS_COLUMN_FULL;
    if (!ms_mark_valid(strings, index) || !ms_reserve(&strings->bytes, end))
        return MS_NO_MEMORY;
    if (length > 0)
        memcpy(strings->bytes.data + strings->bytes.size, data, (size_t)length);
    strings->bytes.size = end;
    ms_set_end(&strings->ends, index, end);
    return MS_DONE;
}

/* ---- UTF-8 ---- */

/* The bytes of the character at p, or minus the bytes that one U+FFFD stands for: the longest
   start of a character, one byte at least, as Unicode recommends and Python does. */
static int ms_utf8_step(const uint8_t *p, const uint8_t *end)
{
    uint8_t lead = *p;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return -1;
    int size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    /* Shortest forms, no surrogates, nothing above U+10FFFF: all decided by the second byte. */
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < size; i++, low = 0x80, high = 0xbf)
        if (p + i >= end || p[i] < low || p[i] > high)
            return -i;
    return size;
}

static int ms_is_utf8(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        int step = ms_utf8_step(p, end);
        if (step < 0)
            return 0;
        p += step;
    }
    return 1;
}

/* A string that must be UTF-8: what is not becomes U+FFFD. Never null. */
static int ms_add_text(ms_strings *strings, int64_t index, const uint8_t *data, int32_t length)
{
    const uint8_t *end = data + length;
    if (ms_is_utf8(data, end))
        return ms_add_string(strings, index, data, length);
    int64_t size = strings->bytes.size;
    while (data < end) {
        int step = ms_utf8_step(data, end);
        if (size + 4 > INT32_MAX)
            return MS_COLUMN_FULL;
        if (!ms_reserve(&strings->bytes, size + 4))
            return MS_NO_MEMORY;
        memcpy(strings->bytes.data + size, step > 0 ? data : (const uint8_t *)"\xef\xbf\xbd",
               step > 0 ? (size_t)step : 3);
        size += step > 0 ? step : 3;
        data += step > 0 ? step : -step;
    }
    strings->bytes.size = size;
    ms_set_end(&strings->ends, index, size);
    return MS_DONE;
}

/* ---- one record ---- */

/* ms_read_record has found the headers sound; should the bytes change under our hands, the
   reader stops inside the record all the same. */
static int ms_add_headers(ms_columns *columns, ms_append_job *job, const ms_record *record)
{
    int64_t index = columns->header_count;
    const uint8_t *p = record->headers;
    ms_header header;
    if (index + record->header_count > INT32_MAX) {
        job->full_column = MS_HEADERS;
        return MS_COLUMN_FULL;
    }
    if (!ms_reserve_ends(&columns->header_key.ends, index + record->header_count)
        || !ms_reserve_ends(&columns->header_value.ends, index + record->header_count))
        return MS_NO_MEMORY;
    for (int32_t i = 0; i < record->header_count; i++, index++) {
        if (!(p = ms_read_header(p, record->end, &header, &job->fault)))
            return MS_CORRUPT;
        job->full_column = MS_HEADER_KEY;
        int outcome = ms_add_text(&columns->header_key, index, header.key, header.key_length);
        if (outcome != MS_DONE)
            return outcome;
        job->full_column = MS_HEADER_VALUE;
        outcome = ms_add_string(
            &columns->header_value, index, header.value, header.value_length);
        if (outcome != MS_DONE)
            return outcome;
    }
    columns->header_count = index;
    return MS_DONE;
}

static inline int ms_add_record(ms_columns *columns, ms_append_job *job, const ms_record *record)
{
    int64_t row = columns->row_count;
    int outcome = ms_add_string(&columns->key, row, record->key, record->key_length);
    if (outcome != MS_DONE) {
        job->full_column = MS_KEY;
        return outcome;
    }
    outcome = ms_add_string(&columns->value, row, record->value, record->value_length);
    if (outcome != MS_DONE) {
        job->full_column = MS_VALUE;
        return outcome;
    }
    if (record->header_count && (outcome = ms_add_headers(columns, job, record)) != MS_DONE)
        return outcome;
    ms_set_end(&columns->header_ends, row, columns->header_count);
    ((int64_t *)columns->offset.data)[row] = record->offset;
    ((int64_t *)columns->timestamp.data)[row] =
        job->has_append_timestamp ? job->append_timestamp : record->timestamp;
    ((int32_t *)columns->partition.data)[row] = job->partition;
    columns->row_count = row + 1;
    return MS_DONE;
}

/* ---- one batch ---- */

static int ms_reserve_rows(ms_columns *columns, int64_t count)
{
    int64_t rows = columns->row_count + count;
    return ms_reserve_ends(&columns->key.ends, rows) && ms_reserve_ends(&columns->value.ends, rows)
        && ms_reserve_ends(&columns->header_ends, rows)
        && ms_reserve(&columns->timestamp, 8 * rows) && ms_reserve(&columns->offset, 8 * rows)
        && ms_reserve(&columns->partition, 4 * rows);
}

static int ms_add_records(ms_columns *columns, ms_append_job *job)
{
    const uint8_t *p = job->body;
    const uint8_t *end = p + job->size;
    /* The deltas of a stamped batch count for nothing, so their sum cannot overflow. */
    int64_t base_timestamp = job->has_append_timestamp ? 0 : job->base_timestamp;
    int64_t rows_max = job->size / MS_RECORD_SIZE_MIN; /* whatever the count claims */
    ms_record record;
    if (!ms_reserve_rows(columns, job->count < rows_max ? job->count : rows_max))
        return MS_NO_MEMORY;
    for (int64_t i = 0; i < job->count; i++) {
        job->fault_index = i;
        p = ms_read_record(p, end, job->base_offset, base_timestamp, &record, &job->fault);
        if (!p)
            return MS_CORRUPT;
        if (record.offset < job->from_offset || record.offset >= job->to_offset)
            continue;
        int outcome = ms_add_record(columns, job, &record);
        if (outcome != MS_DONE)
            return outcome;
    }
    job->fault.position = p;
    return p == end ? MS_DONE : MS_BEHIND_LAST;
}

/* All of the job's records, or none. */
static int ms_append(ms_columns *columns, ms_append_job *job)
{
    ms_columns before = *columns;
    int outcome = ms_add_records(columns, job);
    if (outcome == MS_DONE)
        return outcome;
    columns->row_count = before.row_count;
    columns->header_count = before.header_count;
    ms_strings *now[] = {&columns->key, &columns->value, &columns->header_key,
                         &columns->header_value};
    const ms_strings *then[] = {&before.key, &before.value, &before.header_key,
                                &before.header_value};
    for (int i = 0; i < 4; i++) {
        now[i]->bytes.size = then[i]->bytes.size;
        now[i]->null_count = then[i]->null_count;
    }
    return outcome;
}

/* Even without rows Arrow wants the first offset of each column. */
static int ms_complete(ms_columns *columns)
{
    return ms_reserve_rows(columns, 0)
        && ms_reserve_ends(&columns->header_key.ends, columns->header_count)
        && ms_reserve_ends(&columns->header_value.ends, columns->header_count)
        && ms_reserve(&columns->key.bytes, 1) && ms_reserve(&columns->value.bytes, 1)
        && ms_reserve(&columns->header_key.bytes, 1)
        && ms_reserve(&columns->header_value.bytes, 1);
}

/* An empty buffer that expects `size` bytes and a little more. */
static inline ms_buffer ms_expect(int64_t size)
{
    ms_buffer next = {NULL, 0, 0, size + size / 8};
    return next;
}

static ms_strings ms_expect_strings(const ms_strings *last, int64_t count)
{
    ms_strings next = {ms_expect(4 * (count + 1)), ms_expect(last->bytes.size),
                       ms_expect(last->null_count ? count / 8 + 1 : 0), 0};
    return next;
}

/* Empty columns that expect as much as these hold: a consumer takes chunks of a size. */
static ms_columns ms_expect_columns(const ms_columns *last)
{
    int64_t rows = last->row_count;
    int64_t headers = last->header_count;
    ms_columns next = {
        0, 0,
        ms_expect_strings(&last->key, rows), ms_expect_strings(&last->value, rows),
        ms_expect_strings(&last->header_key, headers),
        ms_expect_strings(&last->header_value, headers),
        ms_expect(4 * (rows + 1)), ms_expect(8 * rows), ms_expect(8 * rows), ms_expect(4 * rows)};
    return next;
}

static void ms_free_strings(ms_strings *strings)
{
    PyMem_RawFree(strings->ends.data);
    ms_spare_keep(strings->bytes.data, strings->bytes.capacity);
    PyMem_RawFree(strings->validity.data);
}

static void ms_free_columns(ms_columns *columns)
{
    ms_free_strings(&columns->key);
    ms_free_strings(&columns->value);
    ms_free_strings(&columns->header_key);
    ms_free_strings(&columns->header_value);
    PyMem_RawFree(columns->header_ends.data);
    PyMem_RawFree(columns->timestamp.data);
    PyMem_RawFree(columns->offset.data);
    PyMem_RawFree(columns->partition.data);
    memset(columns, 0, sizeof *columns);
}

#endif
