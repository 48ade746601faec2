/* The record format, byte by byte: varints, big-endian integers, one record in, one record out.

   Readers take the end of what they may read and never look at or past it; whatever is wrong comes
   back as an ms_fault, which faults.py turns into words. Writers trust the caller to have made
   room: ms_record_size tells how much. No Python in here, so all of it runs without the GIL. */

#ifndef MILLSTREAM_WIRE_H
#define MILLSTREAM_WIRE_H

#include <stdint.h>
#include <string.h>

#define MS_HEADER_SIZE 61
/* Length, attributes, both deltas, both lengths and the header count, one byte each. */
#define MS_RECORD_SIZE_MIN 7
/* A length prefix aside, what a record holds besides its key, value and headers:
   attributes 1, timestamp delta 10, offset delta 5, two lengths and a header count of 5 each. */
#define MS_RECORD_OVERHEAD_MAX 31
#define MS_LENGTH_SIZE_MAX 5

/* Positions in faults.py, KINDS and FIELDS. */
enum ms_fault_kind { MS_NO_VARINT, MS_OUT_OF_RANGE, MS_OVERFLOW, MS_LEFT_OVER };
enum ms_field {
    MS_LENGTH, MS_TIMESTAMP_DELTA, MS_OFFSET_DELTA, MS_KEY_LENGTH, MS_VALUE_LENGTH,
    MS_HEADER_COUNT, MS_HEADER_KEY_LENGTH, MS_HEADER_VALUE_LENGTH
};

typedef struct {
    int kind;
    int field;
    int64_t value;
    const uint8_t *position;
} ms_fault;

/* A record in place: pointers into the body it was read from. Lengths are -1 for null. */
typedef struct {
    int64_t offset;
    int64_t timestamp;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;
    const uint8_t *end;
    int32_t key_length;
    int32_t value_length;
    int32_t header_count;
} ms_record;

typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    int32_t key_length;
    int32_t value_length;
} ms_header;

/* ---- varints ---- */

static inline int64_t ms_unzigzag(uint64_t n) { return (int64_t)(n >> 1) ^ -(int64_t)(n & 1); }

static inline uint64_t ms_zigzag(int64_t n) { return ((uint64_t)n << 1) ^ (uint64_t)(n >> 63); }

/* The byte after the varint, or NULL: cut off, longer than `bits` allows, or too large a value. */
static inline const uint8_t *ms_read_long_varint(
    const uint8_t *p, const uint8_t *end, int bits, int64_t *value)
{
    uint64_t n = 0;
    for (int shift = 0; shift < bits && p < end; shift += 7) {
        uint64_t byte = *p++;
        n |= (byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (shift + 7 > bits && byte >> (bits - shift))
                return NULL;
            *value = ms_unzigzag(n);
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *ms_read_varint(
    const uint8_t *p, const uint8_t *end, int bits, int64_t *value)
{
    if (p < end && *p < 0x80) {
        *value = ms_unzigzag(*p);
        return p + 1;
    }
    return ms_read_long_varint(p, end, bits, value);
}

static inline int ms_varint_size(int64_t n)
{
    return (63 - __builtin_clzll(ms_zigzag(n) | 1)) / 7 + 1;
}

static inline uint8_t *ms_write_varint(uint8_t *p, int64_t value)
{
    uint64_t n = ms_zigzag(value);
    for (; n > 0x7f; n >>= 7)
        *p++ = (uint8_t)(n | 0x80);
    *p++ = (uint8_t)n;
    return p;
}

/* ---- reading a record ---- */

static inline const uint8_t *ms_fail(
    ms_fault *fault, int kind, int field, int64_t value, const uint8_t *position)
{
    fault->kind = kind;
    fault->field = field;
    fault->value = value;
    fault->position = position;
    return NULL;
}

/* A length and that many bytes. `least` is -1 where null is allowed, else 0. */
static inline const uint8_t *ms_read_bytes(
    const uint8_t *p, const uint8_t *end, int field, int least,
    const uint8_t **data, int32_t *length, ms_fault *fault)
{
    const uint8_t *start = p;
    int64_t n;
    if (!(p = ms_read_varint(p, end, 32, &n)))
        return ms_fail(fault, MS_NO_VARINT, field, 0, start);
    if (n < least || n > end - p)
        return ms_fail(fault, MS_OUT_OF_RANGE, field, n, start);
    *data = p;
    *length = (int32_t)n;
    return n > 0 ? p + n : p;
}

static inline const uint8_t *ms_read_header(
    const uint8_t *p, const uint8_t *end, ms_header *header, ms_fault *fault)
{
    p = ms_read_bytes(p, end, MS_HEADER_KEY_LENGTH, 0, &header->key, &header->key_length, fault);
    if (!p)
        return NULL;
    return ms_read_bytes(
        p, end, MS_HEADER_VALUE_LENGTH, -1, &header->value, &header->value_length, fault);
}

/* The header count and, to be sure that they are sound, the headers. */
static inline const uint8_t *ms_skip_headers(
    const uint8_t *p, const uint8_t *end, ms_record *record, ms_fault *fault)
{
    const uint8_t *start = p;
    int64_t count;
    ms_header header;
    if (!(p = ms_read_varint(p, end, 32, &count)))
        return ms_fail(fault, MS_NO_VARINT, MS_HEADER_COUNT, 0, start);
    if (count < 0 || count > (end - p) / 2)
        return ms_fail(fault, MS_OUT_OF_RANGE, MS_HEADER_COUNT, count, start);
    record->header_count = (int32_t)count;
    record->headers = p;
    for (; count > 0; count--)
        if (!(p = ms_read_header(p, end, &header, fault)))
            return NULL;
    return p;
}

/* Both deltas, added to their bases. */
static inline const uint8_t *ms_read_deltas(
    const uint8_t *p, const uint8_t *end, int64_t base_offset, int64_t base_timestamp,
    ms_record *record, ms_fault *fault)
{
    const uint8_t *start = p;
    int64_t delta;
    if (!(p = ms_read_varint(p, end, 64, &delta)))
        return ms_fail(fault, MS_NO_VARINT, MS_TIMESTAMP_DELTA, 0, start);
    if (__builtin_add_overflow(base_timestamp, delta, &record->timestamp))
        return ms_fail(fault, MS_OVERFLOW, MS_TIMESTAMP_DELTA, delta, start);
    start = p;
    if (!(p = ms_read_varint(p, end, 32, &delta)))
        return ms_fail(fault, MS_NO_VARINT, MS_OFFSET_DELTA, 0, start);
    if (delta < 0)
        return ms_fail(fault, MS_OUT_OF_RANGE, MS_OFFSET_DELTA, delta, start);
    if (__builtin_add_overflow(base_offset, delta, &record->offset))
        return ms_fail(fault, MS_OVERFLOW, MS_OFFSET_DELTA, delta, start);
    return p;
}

/* The byte after the record at p, or NULL and what is wrong with it. */
static inline const uint8_t *ms_read_record(
    const uint8_t *p, const uint8_t *end, int64_t base_offset, int64_t base_timestamp,
    ms_record *record, ms_fault *fault)
{
    const uint8_t *start = p;
    int64_t length;
    if (!(p = ms_read_varint(p, end, 32, &length)))
        return ms_fail(fault, MS_NO_VARINT, MS_LENGTH, 0, start);
    if (length < MS_RECORD_SIZE_MIN - 1 || length > end - p)
        return ms_fail(fault, MS_OUT_OF_RANGE, MS_LENGTH, length, start);
    end = p + length;
    p++; /* The attributes of a record have no meaning yet. */
    if (!(p = ms_read_deltas(p, end, base_offset, base_timestamp, record, fault))
        || !(p = ms_read_bytes(
                 p, end, MS_KEY_LENGTH, -1, &record->key, &record->key_length, fault))
        || !(p = ms_read_bytes(
                 p, end, MS_VALUE_LENGTH, -1, &record->value, &record->value_length, fault))
        || !(p = ms_skip_headers(p, end, record, fault)))
        return NULL;
    if (p != end)
        return ms_fail(fault, MS_LEFT_OVER, 0, end - p, p);
    record->end = end;
    return end;
}

/* ---- writing ---- */

static inline int64_t ms_bytes_size(int64_t length)
{
    return ms_varint_size(length) + (length > 0 ? length : 0);
}

/* What follows the length prefix. `headers_size` counts the bytes after the header count. */
static inline int64_t ms_record_length(
    int64_t timestamp_delta, int64_t offset_delta, int64_t key_length, int64_t value_length,
    int64_t header_count, int64_t headers_size)
{
    return 1 + ms_varint_size(timestamp_delta) + ms_varint_size(offset_delta)
        + ms_bytes_size(key_length) + ms_bytes_size(value_length)
        + ms_varint_size(header_count) + headers_size;
}

static inline uint8_t *ms_write_bytes(uint8_t *p, const uint8_t *data, int64_t length)
{
    p = ms_write_varint(p, length);
    if (length > 0) {
        memcpy(p, data, (size_t)length);
        p += length;
    }
    return p;
}

/* All of a record up to and with the header count. */
static inline uint8_t *ms_write_record(
    uint8_t *p, int64_t record_length, int64_t timestamp_delta, int64_t offset_delta,
    const uint8_t *key, int64_t key_length, const uint8_t *value, int64_t value_length,
    int64_t header_count)
{
    p = ms_write_varint(p, record_length);
    *p++ = 0;
    p = ms_write_varint(p, timestamp_delta);
    p = ms_write_varint(p, offset_delta);
    p = ms_write_bytes(p, key, key_length);
    p = ms_write_bytes(p, value, value_length);
    return ms_write_varint(p, header_count);
}

static inline uint8_t *ms_write_big_endian(uint8_t *p, int64_t value, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        *p++ = (uint8_t)((uint64_t)value >> shift);
    return p;
}

#endif
