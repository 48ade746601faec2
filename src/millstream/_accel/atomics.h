/* Flags and counters that hold with and without the GIL. */

#ifndef MILLSTREAM_ATOMICS_H
#define MILLSTREAM_ATOMICS_H

/* The value before: whoever gets 0 has taken the flag. */
static inline int ms_take(int *flag) { return __atomic_exchange_n(flag, 1, __ATOMIC_ACQ_REL); }

static inline void ms_give_back(int *flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }

static inline void ms_add(int *counter, int n) { __atomic_add_fetch(counter, n, __ATOMIC_ACQ_REL); }

#endif
