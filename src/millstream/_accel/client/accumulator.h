/* The gate of an accumulator: what appending threads, the Sender's thread and the thread of the
   sockets agree on.

   `lock` guards the records of open batches and `is_held`, for moments in which nothing of Python
   runs. A thread that must do more, in Python, holds the accumulator's other lock and sets
   `is_held`; as long as it is set, nobody else looks at any queue. So the order of locks is: the
   accumulator's own, the turn of the lanes (produce_lanes.h), this one, then a selector's. */

#ifndef MILLSTREAM_ACCUMULATOR_H
#define MILLSTREAM_ACCUMULATOR_H

#include <sched.h>
#include <stdint.h>

#include "clocks.h"

/* Tries before the processor is left to others: whoever has the gate may be waiting for it. */
#define MS_GATE_TRIES 64

/* Locked and unlocked for every record, and hardly ever by two at once, so the lock is a number: a
   mutex would cost more than the record's own bytes. */
typedef struct {
    int lock;
    int is_held;
    int is_awaited; /* somebody could not pass: to be told when it is held no longer */
} ms_gate;

static inline void ms_gate_init(ms_gate *gate)
{
    gate->lock = 0;
    gate->is_held = 0;
    gate->is_awaited = 0;
}

static inline void ms_gate_lock(ms_gate *gate)
{
    for (int tries = 0; __atomic_exchange_n(&gate->lock, 1, __ATOMIC_ACQUIRE); tries++)
        if (tries >= MS_GATE_TRIES)
            sched_yield();
}

static inline void ms_gate_unlock(ms_gate *gate)
{
    __atomic_store_n(&gate->lock, 0, __ATOMIC_RELEASE);
}

#endif
