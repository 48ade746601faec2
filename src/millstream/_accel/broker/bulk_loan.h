/* A socket that a `Selector` lends to its bulk receiver, with the buffer that is received into. */

#ifndef MILLSTREAM_BULK_LOAN_H
#define MILLSTREAM_BULK_LOAN_H

#include <stdint.h>

/* What somebody wants to know of a whole frame, on any thread; 0 is nothing. */
typedef int64_t (*ms_frame_check)(const uint8_t *frame, int64_t size);

typedef struct {
    /* The lender says: */
    int descriptor;
    uint8_t *base;
    int64_t start; /* where a frame begins */
    int64_t end;   /* where the next bytes go; it moves */
    int64_t size;  /* of the buffer */
    ms_frame_check check;
    void *tag;
    /* and gets back: */
    int64_t result;  /* 1: a frame. Else what recv said: 0 at the end, -errno; -EAGAIN if too slow */
    int64_t checked; /* what `check` found */
    /* Between the two, for the thread. */
    int state;
    int place;
    int64_t deadline_ns;
} ms_loan;

typedef struct ms_bulk ms_bulk;

#endif
