/* See produce_answer.h. */

#include "client/produce_answer.h"

#include "wire.h"

#define MS_PRODUCE_TOPIC_IDS_FROM 13

typedef struct {
    const uint8_t *p;
    const uint8_t *end;
    int is_flexible;
    int is_sound;
} ms_cursor;

static int64_t ms_take_int(ms_cursor *cursor, int size)
{
    if (cursor->end - cursor->p < size) {
        cursor->is_sound = 0;
        return 0;
    }
    cursor->p += size;
    return ms_read_big_endian(cursor->p - size, size);
}

static uint64_t ms_take_uvarint(ms_cursor *cursor)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35 && cursor->p < cursor->end; shift += 7) {
        uint8_t byte = *cursor->p++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    cursor->is_sound = 0;
    return 0;
}

static void ms_skip(ms_cursor *cursor, int64_t size)
{
    if (size < 0 || cursor->end - cursor->p < size)
        cursor->is_sound = 0;
    else
        cursor->p += size;
}

/* Of an array or a string; -1 for null. */
static int64_t ms_take_length(ms_cursor *cursor, int size)
{
    if (cursor->is_flexible)
        return (int64_t)ms_take_uvarint(cursor) - 1;
    int64_t length = ms_take_int(cursor, size);
    return size == 2 ? (int16_t)length : (int32_t)length;
}

static void ms_skip_tags(ms_cursor *cursor)
{
    if (!cursor->is_flexible)
        return;
    uint64_t count = ms_take_uvarint(cursor);
    for (uint64_t i = 0; i < count && cursor->is_sound; i++) {
        ms_take_uvarint(cursor);
        ms_skip(cursor, (int64_t)ms_take_uvarint(cursor));
    }
}

/* 1 if the next partition's records were accepted. */
static int ms_take_produced(ms_cursor *cursor, int version, ms_produced *produced)
{
    produced->partition = (int32_t)ms_take_int(cursor, 4);
    int64_t error = ms_take_int(cursor, 2);
    produced->base_offset = ms_take_int(cursor, 8);
    produced->log_append_time = version >= 2 ? ms_take_int(cursor, 8) : -1;
    if (version >= 5)
        ms_skip(cursor, 8);
    if (version >= 8 && (ms_take_length(cursor, 4) > 0 || ms_take_length(cursor, 2) >= 0))
        return 0;
    ms_skip_tags(cursor);
    return error == 0;
}

int64_t ms_read_produced(
    const uint8_t *frame, int64_t size, int version, ms_produced *all, int64_t room)
{
    ms_cursor cursor = {frame, frame + size, version >= MS_PRODUCE_FLEXIBLE_FROM, 1};
    int64_t count = 0;
    ms_take_int(&cursor, 4);
    ms_skip_tags(&cursor);
    int64_t topics = ms_take_length(&cursor, 4);
    for (int64_t topic = 0; topic < topics && cursor.is_sound; topic++) {
        ms_skip(
            &cursor,
            version >= MS_PRODUCE_TOPIC_IDS_FROM ? 16 : ms_take_length(&cursor, 2));
        int64_t partitions = ms_take_length(&cursor, 4);
        for (int64_t i = 0; i < partitions && cursor.is_sound; i++) {
            ms_produced produced;
            if (!ms_take_produced(&cursor, version, &produced))
                return -1;
            if (count < room)
                all[count] = produced;
            count++;
        }
        ms_skip_tags(&cursor);
    }
    int64_t throttle_ms = ms_take_int(&cursor, 4);
    ms_skip_tags(&cursor);
    int is_whole = cursor.is_sound && cursor.p == cursor.end;
    return is_whole && throttle_ms == 0 && topics > 0 ? count : -1;
}
