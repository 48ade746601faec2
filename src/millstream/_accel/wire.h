/* The record format, byte by byte: varints, big-endian integers, one record in, one record out.

   Readers take the end of what they may read and never look at or past it; whatever is wrong comes
   back as an ms_fault, which faults.py turns into words. Writers trust the caller to have made
   room: ms_record_size tells how much. No Python in here, so all of it runs without the GIL. */

#ifndef MILLSTREAM_WIRE_H
#define MILLSTREAM_WIRE_H

#include <stdint.h>
#include <string.h>

/* The batch header. The length counts what comes after it; the checksum covers the same. */
#define MS_LENGTH_AT 8
#define MS_LENGTH_END 12
#define MS_CRC_AT 17
#define MS_CRC_END 21
#define MS_HEADER_SIZE 61
/* Length, attributes, both deltas, both lengths and the header count, one byte each. */
#define MS_RECORD_SIZE_MIN 7

/* Positions in faults.py, KINDS and FIELDS. */
enum ms_fault_kind {
    MS_CUT_OFF, MS_TOO_WIDE, MS_NEGATIVE, MS_TOO_LONG, MS_LEFT_OVER,
    MS_TIMESTAMP_OVERFLOW, MS_OFFSET_OVERFLOW
};
enum ms_field {
    MS_LENGTH, MS_ATTRIBUTES, MS_TIMESTAMP_DELTA, MS_OFFSET_DELTA, MS_KEY_LENGTH, MS_VALUE_LENGTH,
    MS_HEADER_COUNT, MS_HEADER_KEY_LENGTH, MS_HEADER_VALUE_LENGTH
};

typedef struct {
    int kind;
    int field;
    int64_t value;
    int64_t left;
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

/* The byte after the varint. NULL when the bytes end before it does, or when it has more bytes or
   bits than `bits` allows: *is_cut_off tells which. Needless leading zeros are accepted. */
static inline const uint8_t *ms_read_long_varint(
    const uint8_t *p, const uint8_t *end, int bits, int64_t *value, int *is_cut_off)
{
    uint64_t n = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        *is_cut_off = p >= end;
        if (p >= end)
            return NULL;
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

static inline int ms_varint_size(int64_t n)
{
    return (63 - __builtin_clzll(ms_zigzag(n) | 1)) / 7 + 1;
}

static inline uint8_t *ms_write_uvarint(uint8_t *p, uint64_t n)
{
    for (; n > 0x7f; n >>= 7)
        *p++ = (uint8_t)(n | 0x80);
    *p++ = (uint8_t)n;
    return p;
}

static inline uint8_t *ms_write_varint(uint8_t *p, int64_t value)
{
    return ms_write_uvarint(p, ms_zigzag(value));
}

/* ---- reading a record ---- */

static inline const uint8_t *ms_fail(
    ms_fault *fault, int kind, int field, int64_t value, int64_t left, const uint8_t *position)
{
    fault->kind = kind;
    fault->field = field;
    fault->value = value;
    fault->left = left;
    fault->position = position;
    return NULL;
}

/* A varint of `bits` bits. Most have one byte. */
static inline const uint8_t *ms_read_varint(
    const uint8_t *p, const uint8_t *end, int bits, int field, int64_t *value, ms_fault *fault)
{
    if (p < end && *p < 0x80) {
        *value = ms_unzigzag(*p);
        return p + 1;
    }
    int is_cut_off = 0;
    const uint8_t *next = ms_read_long_varint(p, end, bits, value, &is_cut_off);
    if (!next)
        return ms_fail(fault, is_cut_off ? MS_CUT_OFF : MS_TOO_WIDE, field, 0, 0, p);
    return next;
}

/* A length that is at least `least` and for which there are bytes, `unit` for each. */
static inline const uint8_t *ms_read_length(
    const uint8_t *p, const uint8_t *end, int field, int least, int unit, int64_t *length,
    ms_fault *fault)
{
    const uint8_t *start = p;
    if (!(p = ms_read_varint(p, end, 32, field, length, fault)))
        return NULL;
    if (*length < least)
        return ms_fail(fault, MS_NEGATIVE, field, *length, 0, start);
    if (*length > (end - p) / unit)
        return ms_fail(fault, MS_TOO_LONG, field, *length, end - p, start);
    return p;
}

/* A length and that many bytes. `least` is -1 where null is allowed, else 0. */
static inline const uint8_t *ms_read_bytes(
    const uint8_t *p, const uint8_t *end, int field, int least,
    const uint8_t **data, int32_t *length, ms_fault *fault)
{
    int64_t n;
    if (!(p = ms_read_length(p, end, field, least, 1, &n, fault)))
        return NULL;
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
    int64_t count;
    ms_header header;
    /* A header takes two bytes at least, so no claim is believed that the bytes cannot hold. */
    if (!(p = ms_read_length(p, end, MS_HEADER_COUNT, 0, 2, &count, fault)))
        return NULL;
    record->header_count = (int32_t)count;
    record->headers = p;
    for (; count > 0; count--)
        if (!(p = ms_read_header(p, end, &header, fault)))
            return NULL;
    return p;
}

/* Attributes, which have no meaning yet, and both deltas. */
static inline const uint8_t *ms_read_deltas(
    const uint8_t *p, const uint8_t *end, ms_record *record, ms_fault *fault)
{
    if (p >= end)
        return ms_fail(fault, MS_CUT_OFF, MS_ATTRIBUTES, 0, 0, p);
    p++;
    if (!(p = ms_read_varint(p, end, 64, MS_TIMESTAMP_DELTA, &record->timestamp, fault)))
        return NULL;
    const uint8_t *start = p;
    if (!(p = ms_read_varint(p, end, 32, MS_OFFSET_DELTA, &record->offset, fault)))
        return NULL;
    if (record->offset < 0)
        return ms_fail(fault, MS_NEGATIVE, MS_OFFSET_DELTA, record->offset, 0, start);
    return p;
}

/* The byte after the record at p, or NULL and what is wrong with it. */
static inline const uint8_t *ms_read_record(
    const uint8_t *p, const uint8_t *end, int64_t base_offset, int64_t base_timestamp,
    ms_record *record, ms_fault *fault)
{
    const uint8_t *start = p;
    int64_t length;
    if (!(p = ms_read_length(p, end, MS_LENGTH, 0, 1, &length, fault)))
        return NULL;
    end = p + length;
    if (!(p = ms_read_deltas(p, end, record, fault))
        || !(p = ms_read_bytes(
                 p, end, MS_KEY_LENGTH, -1, &record->key, &record->key_length, fault))
        || !(p = ms_read_bytes(
                 p, end, MS_VALUE_LENGTH, -1, &record->value, &record->value_length, fault))
        || !(p = ms_skip_headers(p, end, record, fault)))
        return NULL;
    if (p != end)
        return ms_fail(fault, MS_LEFT_OVER, 0, end - p, 0, p);
    if (__builtin_add_overflow(base_timestamp, record->timestamp, &record->timestamp))
        return ms_fail(fault, MS_TIMESTAMP_OVERFLOW, 0, 0, 0, start);
    if (__builtin_add_overflow(base_offset, record->offset, &record->offset))
        return ms_fail(fault, MS_OFFSET_OVERFLOW, 0, 0, 0, start);
    record->end = end;
    return end;
}

/* ---- reading a record as most are ---- */

/* The byte after a varint of up to three bytes, all of which the caller knows to be there; NULL if
   it is longer. */
static inline const uint8_t *ms_read_short_varint(const uint8_t *p, int64_t *value)
{
    uint32_t n = p[0];
    if (n < 0x80) {
        *value = ms_unzigzag(n);
        return p + 1;
    }
    n = (n & 0x7f) | (uint32_t)p[1] << 7;
    if (p[1] < 0x80) {
        *value = ms_unzigzag(n);
        return p + 2;
    }
    n = (n & 0x3fff) | (uint32_t)p[2] << 14;
    *value = ms_unzigzag(n);
    return p[2] < 0x80 ? p + 3 : NULL;
}

/* The same as ms_read_record for a record without headers whose numbers are short, with fewer
   questions asked. NULL for all others, sound or not: ms_read_record knows. */
static inline const uint8_t *ms_read_plain_record(
    const uint8_t *p, const uint8_t *end, int64_t base_offset, int64_t base_timestamp,
    ms_record *record)
{
    int64_t length, key_length, value_length;
    /* Length, attributes, two deltas and the key's length: 13 bytes at most. */
    if (end - p < 16 || !(p = ms_read_short_varint(p, &length)) || length < 0 || length > end - p)
        return NULL;
    end = p + length;
    if (!(p = ms_read_short_varint(p + 1, &record->timestamp))
        || !(p = ms_read_short_varint(p, &record->offset)) || record->offset < 0
        || !(p = ms_read_short_varint(p, &key_length)) || key_length < -1)
        return NULL;
    record->key = p;
    record->key_length = (int32_t)key_length;
    key_length += key_length < 0;
    if (key_length > end - p - 3 || !(p = ms_read_short_varint(p + key_length, &value_length))
        || value_length < -1)
        return NULL;
    record->value = p;
    record->value_length = (int32_t)value_length;
    value_length += value_length < 0;
    /* The count of headers is all that is left, and it is zero. */
    if (value_length != end - p - 1 || p[value_length])
        return NULL;
    if (__builtin_add_overflow(base_timestamp, record->timestamp, &record->timestamp)
        || __builtin_add_overflow(base_offset, record->offset, &record->offset))
        return NULL;
    record->header_count = 0;
    record->headers = end;
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

/* As an unsigned number: what is narrower than 64 bits and has a sign is cast by the caller. */
static inline int64_t ms_read_big_endian(const uint8_t *p, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | p[i];
    return (int64_t)value;
}

#endif
