/* Rows of a table, in their order, each into the open batch of the partition that its key belongs
   to. Needs no GIL; whoever calls it sees to it that nobody else touches the batches.

   Only what is plain: keys and values without nulls, no headers, one timestamp for all, batches
   that have begun and have room. It stops in front of any other row, which its caller looks at
   closely, and goes on behind it. */

#ifndef MILLSTREAM_SCATTER_H
#define MILLSTREAM_SCATTER_H

#include "arrow/input.h"
#include "codec/batch.h"

/* An open batch while rows go into it; `at` is NULL if there is none. */
typedef struct {
    ms_batch *batch;
    uint8_t *at;
    uint8_t *end;
    uint64_t offset; /* of the next record, and the timestamp's delta: both zigzag */
    uint64_t delta;
} ms_target;

typedef struct {
    const ms_input *input;
    ms_target *targets;
    uint32_t count;
    int64_t row;
    int64_t stop;
    int64_t size_limit;
    int64_t timestamp;
    int64_t partition; /* whose batch the row it stopped at needs; -1 if it is wrong */
    uint32_t (*checksum)(uint32_t seed, const uint8_t *data, size_t size);
} ms_scatter;

/* Whether the rows are of the plainest kind. */
int ms_can_scatter(const ms_input *input);
void ms_target_begin(ms_target *target, ms_batch *batch, const ms_scatter *scatter);
/* What came into a batch counts; how many records that is. */
int64_t ms_target_end(ms_target *target, int64_t timestamp);
void ms_scatter_rows(ms_scatter *scatter);

#endif
