/* What happens seldom to byte strings that grow: more memory, nulls, text that is not UTF-8. Called
   by columns.c; no GIL is needed. */

#include "arrow/strings.h"

/* More memory for a buffer, with what is in it. */
int ms_grow(ms_buffer *buffer, int64_t size)
{
    int64_t capacity = buffer->capacity * 2;
    if (capacity < size)
        capacity = size;
    if (capacity < buffer->hint)
        capacity = buffer->hint;
    if (capacity < MS_BUFFER_SIZE_MIN)
        capacity = MS_BUFFER_SIZE_MIN;
    void *data = ms_memory_take(&capacity);
    if (!data)
        return 0;
    if (buffer->data)
        memcpy(data, buffer->data, (size_t)buffer->capacity);
    ms_memory_free(buffer->data, buffer->capacity);
    buffer->data = (uint8_t *)data;
    buffer->capacity = capacity;
    return 1;
}

int ms_add_null(ms_strings *strings, int64_t index)
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

int ms_add_text(ms_strings *strings, int64_t index, const uint8_t *data, int32_t length)
{
    const uint8_t *end = data + length;
    if (ms_is_utf8(data, end))
        return ms_add_string(strings, index, data, length, end);
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
