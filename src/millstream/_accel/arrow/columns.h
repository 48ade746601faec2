/* Records as Arrow columns while they grow. */

#ifndef MILLSTREAM_ARROW_COLUMNS_H
#define MILLSTREAM_ARROW_COLUMNS_H

#include <stdint.h>

#include "arrow/strings.h"
#include "wire.h"

/* Columns whose bytes, or entries, Arrow counts in 32 bits. Names in arrow_builder.pyx. */
enum ms_limited { MS_KEY, MS_VALUE, MS_HEADERS, MS_HEADER_KEY, MS_HEADER_VALUE };

/* All columns by number, in the order of `COLUMNS` in arrow_schema.py: bits of `left_out`. */
enum ms_column {
    MS_KEYS = 1,
    MS_VALUES = 2,
    MS_HEADER_LISTS = 4,
    MS_TIMESTAMPS = 8,
    MS_OFFSETS = 16,
    MS_PARTITIONS = 32
};

typedef struct {
    int64_t row_count;
    int64_t header_count;
    int64_t expected; /* bytes of batches that are to come into empty columns; 0: nobody knows */
    int left_out;
    ms_strings key;
    ms_strings value;
    ms_strings header_key;
    ms_strings header_value;
    ms_buffer header_ends;
    ms_buffer timestamp;
    ms_buffer offset;
    ms_buffer partition;
} ms_columns;

typedef uint32_t (*ms_checksum)(uint32_t seed, const uint8_t *data, size_t size);

/* What to append, and what went wrong with it. With a `checksum`, `crc` is that of what lies before
   the body, and then that of everything. */
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
    ms_checksum checksum;
    uint32_t crc;
    uint32_t crc_stored;
    const uint8_t *checked; /* as far as the checksum has come */
    ms_fault fault;
    int64_t fault_index;
    int full_column;
} ms_append_job;

/* Add all of the job's records, or none: an ms_outcome. */
int ms_append(ms_columns *columns, ms_append_job *job);

/* Even without rows Arrow wants the first offset of each column; 0 without memory. */
int ms_complete(ms_columns *columns);

/* Empty columns that expect as much as these hold: a consumer takes chunks of a size. */
ms_columns ms_expect_columns(const ms_columns *last);

void ms_free_columns(ms_columns *columns);

#endif
