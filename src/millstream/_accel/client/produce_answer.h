/* What the answer to a Produce request says if it says of every partition that all is well.

   Only that: any other answer is read by Python. Needs no GIL. */

#ifndef MILLSTREAM_PRODUCE_ANSWER_H
#define MILLSTREAM_PRODUCE_ANSWER_H

#include <stdint.h>

#define MS_PRODUCE_FLEXIBLE_FROM 9

/* Where the records of one partition are now. */
typedef struct {
    int32_t partition;
    int64_t base_offset;
    int64_t log_append_time;
} ms_produced;

/* `frame`: the response without its size, of a Produce request from version 1 on. How many
   partitions it tells of, the first `room` of which are put down in `all`; -1 if one of them is
   not well, or there is anything else to see to. */
int64_t ms_read_produced(
    const uint8_t *frame, int64_t size, int version, ms_produced *all, int64_t room);

#endif
