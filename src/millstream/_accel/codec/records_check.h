/* What a leader wants to know of a batch's records before it takes them: that each can be read, and
   what a topic's settings depend on. */

#ifndef MILLSTREAM_RECORDS_CHECK_H
#define MILLSTREAM_RECORDS_CHECK_H

#include "wire.h"

/* How many faulty records are named: a batch may have a million of them. */
#define MS_NAMED_MAX 100

typedef struct {
    /* Given: the batch's first timestamp, and which timestamps are allowed beside -1. */
    int64_t base_timestamp;
    int64_t oldest;
    int64_t newest;
    /* Found. Offsets are in order if they count from 0 without holes. */
    int64_t largest_timestamp;
    int64_t keyless_count;
    int64_t untimely_count;
    int is_in_order;
    /* The first of those records that have no key, or a timestamp that is not allowed. */
    int64_t keyless[MS_NAMED_MAX];
    int64_t untimely[MS_NAMED_MAX];
    int64_t untimely_at[MS_NAMED_MAX];
    /* Which record cannot be read. */
    int64_t faulty;
} ms_records_check;

/* The byte after the last of `count` records, which are at least one; NULL and a fault if one of
   them cannot be read. */
const uint8_t *ms_check_records(
    const uint8_t *body, const uint8_t *end, int64_t count, ms_records_check *check,
    ms_fault *fault);

#endif
