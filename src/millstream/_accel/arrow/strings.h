/* Byte strings in Arrow's form while they grow: buffers, offsets, bitmaps, and text that is UTF-8.

   Growing needs no GIL. A failure half way is undone by restoring the counts, so what lies behind
   them is garbage and every write, of bitmaps too, sets each bit it stands for. */

#ifndef MILLSTREAM_ARROW_STRINGS_H
#define MILLSTREAM_ARROW_STRINGS_H

#include <stdint.h>
#include <string.h>

#include "arrow/free_list.h"

#define MS_BUFFER_SIZE_MIN 64
#define MS_COPY_STEP 32
#define MS_SHORT_STRING 256

/* What came of appending a batch. */
enum ms_outcome {
    MS_DONE,
    MS_CORRUPT,
    MS_BEHIND_LAST,
    MS_NO_MEMORY,
    MS_COLUMN_FULL,
    MS_BAD_CHECKSUM
};

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

/* More memory for a buffer, with what is in it; 0 without memory. */
int ms_grow(ms_buffer *buffer, int64_t size);

static inline int ms_reserve(ms_buffer *buffer, int64_t size)
{
    return size <= buffer->capacity || ms_grow(buffer, size);
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

int ms_add_null(ms_strings *strings, int64_t index);

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

/* Most strings are so short that a call costs as much as the copy: they are copied in steps, up to
   a step too far where source and target have room for it. */
static inline void ms_copy_string(
    uint8_t *to, const uint8_t *from, int64_t length, const uint8_t *from_end)
{
    if (length > MS_SHORT_STRING || from_end - from < length + MS_COPY_STEP) {
        if (length > 0)
            memcpy(to, from, (size_t)length);
        return;
    }
    for (int64_t at = 0; at < length; at += MS_COPY_STEP)
        memcpy(to + at, from + at, MS_COPY_STEP);
}

/* The ends are reserved by the caller, for many strings at once. Bytes may be read up to
   `data_end`. */
static inline int ms_add_string(
    ms_strings *strings, int64_t index, const uint8_t *data, int32_t length,
    const uint8_t *data_end)
{
    if (length < 0)
        return ms_add_null(strings, index);
    int64_t end = strings->bytes.size + length;
    if (end > INT32_MAX)
        return MS_COLUMN_FULL;
    if (!ms_mark_valid(strings, index) || !ms_reserve(&strings->bytes, end + MS_COPY_STEP))
        return MS_NO_MEMORY;
    ms_copy_string(strings->bytes.data + strings->bytes.size, data, length, data_end);
    strings->bytes.size = end;
    ms_set_end(&strings->ends, index, end);
    return MS_DONE;
}

/* A string that must be UTF-8: what is not becomes U+FFFD. Never null. */
int ms_add_text(ms_strings *strings, int64_t index, const uint8_t *data, int32_t length);

#endif
