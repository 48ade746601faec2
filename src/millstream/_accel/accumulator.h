/* The gate of an accumulator: what appending threads, the Sender's thread and the thread of the
   sockets agree on.

   `lock` guards the records of open batches and `is_held`, for moments in which nothing of Python
   runs. A thread that must do more, in Python, holds the accumulator's other lock and sets
   `is_held`; as long as it is set, nobody else looks at any queue. So the order of locks is: the
   accumulator's own, the turn of the lanes (produce_lanes.h), this one, then a selector's. */

#ifndef MILLSTREAM_ACCUMULATOR_H
#define MILLSTREAM_ACCUMULATOR_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    pthread_mutex_t lock;
    int is_held;
    int is_awaited; /* somebody could not pass: to be told when it is held no longer */
} ms_gate;

static inline void ms_gate_init(ms_gate *gate)
{
    pthread_mutex_init(&gate->lock, NULL);
    gate->is_held = 0;
    gate->is_awaited = 0;
}

static inline void ms_gate_end(ms_gate *gate) { pthread_mutex_destroy(&gate->lock); }

static inline void ms_gate_lock(ms_gate *gate) { pthread_mutex_lock(&gate->lock); }

static inline void ms_gate_unlock(ms_gate *gate) { pthread_mutex_unlock(&gate->lock); }

static inline int64_t ms_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

#endif
