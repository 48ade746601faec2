/* The walk over a batch's records that every leader makes; see records_check.h.

   `record_codec.pyx` calls it for the full path and `broker/client_batch.pyx` for the fast one, on any
   thread, without locks; from 64 KiB on without the GIL. The plain version is `inspect_records` in
   records/plain/walking.py. */

#include "codec/records_check.h"

static inline void ms_note_keyless(ms_records_check *check, int64_t index)
{
    if (check->keyless_count < MS_NAMED_MAX)
        check->keyless[check->keyless_count] = index;
    check->keyless_count++;
}

static inline void ms_note_untimely(ms_records_check *check, int64_t index, int64_t timestamp)
{
    if (check->untimely_count < MS_NAMED_MAX) {
        check->untimely[check->untimely_count] = index;
        check->untimely_at[check->untimely_count] = timestamp;
    }
    check->untimely_count++;
}

/* A timestamp that does not fit 64 bits is never allowed. */
static inline void ms_check_timestamp(ms_records_check *check, int64_t index, int64_t delta)
{
    int64_t timestamp;
    int is_untimely = __builtin_add_overflow(check->base_timestamp, delta, &timestamp);
    if (is_untimely)
        timestamp = delta > 0 ? INT64_MAX : INT64_MIN;
    else
        is_untimely = (timestamp < check->oldest || timestamp > check->newest) && timestamp != -1;
    if (is_untimely)
        ms_note_untimely(check, index, timestamp);
    if (timestamp > check->largest_timestamp)
        check->largest_timestamp = timestamp;
}

const uint8_t *ms_check_records(
    const uint8_t *body, const uint8_t *end, int64_t count, ms_records_check *check,
    ms_fault *fault)
{
    const uint8_t *p = body;
    ms_record record;
    check->largest_timestamp = INT64_MIN;
    check->keyless_count = check->untimely_count = 0;
    check->is_in_order = 1;
    for (int64_t index = 0; index < count; index++) {
        const uint8_t *next = ms_read_plain_record(p, end, 0, 0, &record);
        if (!next && !(next = ms_read_record(p, end, 0, 0, &record, fault))) {
            check->faulty = index;
            return NULL;
        }
        p = next;
        check->is_in_order &= record.offset == index;
        if (record.key_length < 0)
            ms_note_keyless(check, index);
        ms_check_timestamp(check, index, record.timestamp);
    }
    return p;
}
