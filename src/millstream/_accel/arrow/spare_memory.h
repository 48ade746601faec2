/* Buffers of columns that were let go, kept for the next ones: fresh memory costs as much to touch
   as the rows that come into it. Some for the whole process; any thread, no GIL.

   Who finds the lock taken goes without, so that a forked child cannot wait for ever. */

#ifndef MILLSTREAM_SPARE_MEMORY_H
#define MILLSTREAM_SPARE_MEMORY_H

#include <Python.h>
#include <stdint.h>

#include "atomics.h"
#include "large_memory.h"

#define MS_SPARE_SIZE_MIN ((int64_t)64 << 10) /* less comes from the allocator as quickly */
#define MS_SPARE_SIZE_MAX ((int64_t)8 << 20)
#define MS_SPARE_BYTES_MAX ((int64_t)16 << 20)
#define MS_SPARES_MAX 32

static struct {
    int is_taken;
    int count;
    int64_t bytes;
    struct {
        void *data;
        int64_t capacity;
    } spares[MS_SPARES_MAX];
} ms_spare_memory;

/* Memory is asked for, and freed, by its size. The small part comes from Python's raw allocator,
   which needs no GIL. */
static inline int ms_is_large(int64_t capacity) { return capacity >= (int64_t)MS_LARGE_PAGE; }

/* The smallest spare for `size` bytes that is not more than twice as large; *capacity tells how
   large it is. NULL if there is none. */
static inline void *ms_spare_take(int64_t size, int64_t *capacity)
{
    void *data = NULL;
    int best = -1;
    if (size < MS_SPARE_SIZE_MIN || ms_take(&ms_spare_memory.is_taken))
        return NULL;
    for (int i = 0; i < ms_spare_memory.count; i++) {
        int64_t found = ms_spare_memory.spares[i].capacity;
        if (found >= size && found <= 2 * size
            && (best < 0 || found < ms_spare_memory.spares[best].capacity))
            best = i;
    }
    if (best >= 0) {
        data = ms_spare_memory.spares[best].data;
        *capacity = ms_spare_memory.spares[best].capacity;
        ms_spare_memory.bytes -= *capacity;
        ms_spare_memory.spares[best] = ms_spare_memory.spares[--ms_spare_memory.count];
    }
    ms_give_back(&ms_spare_memory.is_taken);
    return data;
}

static inline int ms_spare_keep(void *data, int64_t capacity)
{
    int is_kept = 0;
    if (capacity >= MS_SPARE_SIZE_MIN && capacity <= MS_SPARE_SIZE_MAX
        && !ms_take(&ms_spare_memory.is_taken)) {
        is_kept = ms_spare_memory.count < MS_SPARES_MAX
            && ms_spare_memory.bytes + capacity <= MS_SPARE_BYTES_MAX;
        if (is_kept) {
            ms_spare_memory.bytes += capacity;
            ms_spare_memory.spares[ms_spare_memory.count].data = data;
            ms_spare_memory.spares[ms_spare_memory.count++].capacity = capacity;
        }
        ms_give_back(&ms_spare_memory.is_taken);
    }
    return is_kept;
}

/* Memory for *capacity bytes, which may become more; NULL without memory. */
static inline void *ms_memory_take(int64_t *capacity)
{
    void *data = ms_spare_take(*capacity, capacity);
    if (data)
        return data;
    return ms_is_large(*capacity) ? ms_large_allocate((size_t)*capacity)
                                  : PyMem_RawMalloc((size_t)*capacity);
}

static inline void ms_memory_let_go(void *data, int64_t capacity)
{
    if (!data || ms_spare_keep(data, capacity))
        return;
    if (ms_is_large(capacity))
        free(data);
    else
        PyMem_RawFree(data);
}

#endif
