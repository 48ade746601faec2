/* What time it is, for the compiled parts that may not ask Python. */

#ifndef MILLSTREAM_CLOCKS_H
#define MILLSTREAM_CLOCKS_H

#include <stdint.h>
#include <time.h>

#define MS_NS_PER_MS INT64_C(1000000)

static inline int64_t ms_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int64_t ms_wall_ms(void) { return ms_clock_ns(CLOCK_REALTIME) / MS_NS_PER_MS; }
static inline int64_t ms_monotonic_ns(void) { return ms_clock_ns(CLOCK_MONOTONIC); }
static inline int64_t ms_monotonic_ms(void) { return ms_monotonic_ns() / MS_NS_PER_MS; }

#endif
