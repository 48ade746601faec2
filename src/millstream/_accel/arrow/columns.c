/* The rows of a batch put into Arrow columns. `ArrowRecordsBuilder` calls it, on the caller's thread
   and without the GIL for large batches; a builder is used by one thread at a time. Plain version:
   records/plain/arrow_builder.py.

   Rows are written once, straight into the buffers that Arrow will own; of a batch that is not sound
   none is. */

#include "arrow/columns.h"

#include <string.h>

#define MS_CHECK_STEP (24 * 1024) /* half of a usual first cache */

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
            &columns->header_value, index, header.value, header.value_length, record->end);
        if (outcome != MS_DONE)
            return outcome;
    }
    columns->header_count = index;
    return MS_DONE;
}

static inline int ms_add_strings(ms_columns *columns, ms_append_job *job, const ms_record *record)
{
    int64_t row = columns->row_count;
    const uint8_t *end = job->body + job->size;
    int outcome;
    if (!(columns->left_out & MS_KEYS)) {
        outcome = ms_add_string(&columns->key, row, record->key, record->key_length, end);
        if (outcome != MS_DONE) {
            job->full_column = MS_KEY;
            return outcome;
        }
    }
    if (!(columns->left_out & MS_VALUES)) {
        outcome = ms_add_string(&columns->value, row, record->value, record->value_length, end);
        if (outcome != MS_DONE) {
            job->full_column = MS_VALUE;
            return outcome;
        }
    }
    return MS_DONE;
}

static inline int ms_add_record(ms_columns *columns, ms_append_job *job, const ms_record *record)
{
    int64_t row = columns->row_count;
    int outcome = ms_add_strings(columns, job, record);
    if (outcome != MS_DONE)
        return outcome;
    if (!(columns->left_out & MS_HEADER_LISTS)) {
        if (record->header_count && (outcome = ms_add_headers(columns, job, record)) != MS_DONE)
            return outcome;
        ms_set_end(&columns->header_ends, row, columns->header_count);
    }
    if (!(columns->left_out & MS_OFFSETS))
        ((int64_t *)columns->offset.data)[row] = record->offset;
    if (!(columns->left_out & MS_TIMESTAMPS))
        ((int64_t *)columns->timestamp.data)[row] =
            job->has_append_timestamp ? job->append_timestamp : record->timestamp;
    if (!(columns->left_out & MS_PARTITIONS))
        ((int32_t *)columns->partition.data)[row] = job->partition;
    columns->row_count = row + 1;
    return MS_DONE;
}

/* ---- one batch ---- */

/* Columns that are left out stay without memory. */
static int ms_reserve_rows(ms_columns *columns, int64_t count)
{
    int64_t rows = columns->row_count + count;
    int left_out = columns->left_out;
    return (left_out & MS_KEYS || ms_reserve_ends(&columns->key.ends, rows))
        && (left_out & MS_VALUES || ms_reserve_ends(&columns->value.ends, rows))
        && (left_out & MS_HEADER_LISTS || ms_reserve_ends(&columns->header_ends, rows))
        && (left_out & MS_TIMESTAMPS || ms_reserve(&columns->timestamp, 8 * rows))
        && (left_out & MS_OFFSETS || ms_reserve(&columns->offset, 8 * rows))
        && (left_out & MS_PARTITIONS || ms_reserve(&columns->partition, 4 * rows));
}

/* The first batch of many tells how many rows the others will bring. */
static void ms_expect_like(ms_columns *columns, const ms_append_job *job, int64_t rows)
{
    int64_t expected = columns->expected + columns->expected / 8;
    columns->expected = 0;
    if (columns->row_count || job->size <= 0 || expected < job->size)
        return;
    columns->value.bytes.hint = expected;
    rows = (int64_t)((double)expected / (double)job->size * (double)rows) + 1;
    columns->key.ends.hint = columns->value.ends.hint = columns->header_ends.hint = 4 * rows;
    columns->timestamp.hint = columns->offset.hint = 8 * rows;
    columns->partition.hint = 4 * rows;
}

/* The checksum goes before the reader, a piece at a time, so that the reader finds the bytes in the
   nearest cache. */
static inline void ms_check_ahead(ms_append_job *job, const uint8_t *p, const uint8_t *end)
{
    while (p >= job->checked && job->checked < end) {
        int64_t size = end - job->checked < MS_CHECK_STEP ? end - job->checked : MS_CHECK_STEP;
        job->crc = job->checksum(job->crc, job->checked, (size_t)size);
        job->checked += size;
    }
}

static int ms_add_records(ms_columns *columns, ms_append_job *job)
{
    const uint8_t *p = job->body;
    const uint8_t *end = p + job->size;
    /* The deltas of a stamped batch count for nothing, so their sum cannot overflow. */
    int64_t base_timestamp = job->has_append_timestamp ? 0 : job->base_timestamp;
    int64_t rows_max = job->size / MS_RECORD_SIZE_MIN; /* whatever the count claims */
    ms_record record;
    if (rows_max > job->count)
        rows_max = job->count;
    ms_expect_like(columns, job, rows_max);
    if (!ms_reserve_rows(columns, rows_max))
        return MS_NO_MEMORY;
    for (int64_t i = 0; i < job->count; i++) {
        if (p >= job->checked)
            ms_check_ahead(job, p, end);
        job->fault_index = i;
        const uint8_t *start = p;
        p = ms_read_plain_record(start, end, job->base_offset, base_timestamp, &record);
        if (!p)
            p = ms_read_record(
                start, end, job->base_offset, base_timestamp, &record, &job->fault);
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

/* The same; and whatever else was found, a wrong checksum is what is wrong. */
static int ms_add_checked(ms_columns *columns, ms_append_job *job)
{
    const uint8_t *end = job->body + job->size;
    job->checked = job->checksum ? job->body : end;
    int outcome = ms_add_records(columns, job);
    if (!job->checksum || outcome == MS_NO_MEMORY)
        return outcome;
    ms_check_ahead(job, end, end);
    return job->crc == job->crc_stored ? outcome : MS_BAD_CHECKSUM;
}

int ms_append(ms_columns *columns, ms_append_job *job)
{
    ms_columns before = *columns;
    int outcome = ms_add_checked(columns, job);
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

int ms_complete(ms_columns *columns)
{
    return ms_reserve_rows(columns, 0)
        && ms_reserve_ends(&columns->header_key.ends, columns->header_count)
        && ms_reserve_ends(&columns->header_value.ends, columns->header_count)
        && (columns->left_out & MS_KEYS || ms_reserve(&columns->key.bytes, 1))
        && (columns->left_out & MS_VALUES || ms_reserve(&columns->value.bytes, 1))
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

ms_columns ms_expect_columns(const ms_columns *last)
{
    int64_t rows = last->row_count;
    int64_t headers = last->header_count;
    ms_columns next = {
        0, 0, 0, last->left_out,
        ms_expect_strings(&last->key, rows), ms_expect_strings(&last->value, rows),
        ms_expect_strings(&last->header_key, headers),
        ms_expect_strings(&last->header_value, headers),
        ms_expect(4 * (rows + 1)), ms_expect(8 * rows), ms_expect(8 * rows), ms_expect(4 * rows)};
    return next;
}

static inline void ms_free_buffer(ms_buffer *buffer)
{
    ms_memory_free(buffer->data, buffer->capacity);
}

static void ms_free_strings(ms_strings *strings)
{
    ms_free_buffer(&strings->ends);
    ms_free_buffer(&strings->bytes);
    ms_free_buffer(&strings->validity);
}

void ms_free_columns(ms_columns *columns)
{
    ms_free_strings(&columns->key);
    ms_free_strings(&columns->value);
    ms_free_strings(&columns->header_key);
    ms_free_strings(&columns->header_value);
    ms_free_buffer(&columns->header_ends);
    ms_free_buffer(&columns->timestamp);
    ms_free_buffer(&columns->offset);
    ms_free_buffer(&columns->partition);
    memset(columns, 0, sizeof *columns);
}
